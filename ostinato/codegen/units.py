"""Divide a module into units that are compiled apart: long kernels, plain functions, the rest.

A kernel's unit does not depend on the model around it: its function is named by what it computes,
and only what it uses is declared. So models with a kernel in common have a unit in common. The
functions that kernels call are compiled once, with the rest.

Functions marked `optnone` run so rarely, or take so little of a call, that LLVM may translate them
without optimisation, by a target machine that takes an eighth of the time.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

# Functions of this many characters are units. LLVM takes 0.5 us for a character, so 10 ms for such
# a function, and 1.3 ms for one module more (`emit_object` of a kernel, and of an empty function).
# With half of that an edited ResNet-18 takes as long, and with twice that 0.1 s longer
# (`bench_compile --also`, one layer more).
SHORTEST = 20_000
# Plain functions of this many characters together are a unit. LLVM takes 1.2 ms for 1,600 of them
# beside others, and 0.5 ms as a module (`emit_object` of `layout`), and joining takes about 1 ms.
_SHORTEST_PLAIN = 4000
_KERNEL = re.compile(r'define internal (\w+) @("kernel\.[^"\n]*")')
_CALLED = re.compile(r'@("kernel\.[^"\n]*")\(')
_NAMES = re.compile(r"@[\w.]+")
# Functions that kernels of any unit may call.
_COMMON = re.compile(r"define internal (.*? (@(?:safepoint|function\.[\w.]+))\(.*) \{")
# Linkage, type of the result, name, parameters and attributes of a function.
_DEFINED = re.compile(r'define (internal |hidden |)([^@\n]*)(@"?[\w.]+"?)(\([^{]*\))([^({]*)\{')
_ANY_NAME = re.compile(r'@"?[\w.]+"?')
# Lines around functions that each unit needs. Intrinsics are declared by name.
_FRAME = ("target ", "@nowhere ", "%Poll ", "!0 ", "attributes #0 ")


class Units(NamedTuple):
    """Modules as LLVM assembly; `rest` calls the kernels, and has the functions that these call.

    names: of the kernels, and their names in the whole module.
    """

    rest: str
    kernels: tuple[str, ...]
    names: tuple[tuple[str, str], ...] = ()


def divide(text: str, shortest: int | None = None) -> Units:
    """Divide a module, as `module_text` writes it, into units.

    shortest: functions of this many characters are units; None for `SHORTEST`.
    """
    shortest = SHORTEST if shortest is None else shortest
    blocks = text.split("\n}\n")
    if not any(len(block) >= shortest and _KERNEL.search(block) for block in blocks):
        return Units(text, ())
    lines = [line for block in blocks for line in _outside(block).split("\n")]
    frame = [line for line in lines if line.startswith(_FRAME)]
    known = {_NAMES.findall(line)[0]: line for line in lines if line.startswith("declare ")}
    common = (found for block in blocks for found in _COMMON.finditer(block))
    known |= {"@nowhere": "", **{found[2]: f"declare hidden {found[1]}" for found in common}}
    kernels: list[str] = []
    rest: list[str] = []
    names: dict[str, str] = {}
    for block in blocks:
        head = _KERNEL.search(block)
        used = set() if head is None else set(_NAMES.findall(block, head.end()))
        if head is None or len(block) < shortest or not used <= known.keys():
            rest.append(_COMMON.sub(r"define hidden \1 {", block) + "\n}\n")
            continue
        function = f"define hidden {head[1]} @kernel{block[head.end() :]}"
        needed = [known[name] for name in sorted(used) if known[name]]
        unit = "\n".join((*frame, *needed, function)) + "\n}\n"
        name = f'"kernel.{hashlib.sha256(unit.encode()).hexdigest()[:32]}"'
        rest.append(block[: head.start()])
        # Kernels that differ in their names alone are one function.
        if name not in names.values():
            kernels.append(unit.replace("@kernel(", f"@{name}(", 1))
            parameters = block[head.end() : block.index(" #0 {", head.end())]
            rest.append(f"declare hidden {head[1]} @{name}{parameters}\n")
        names[head[2]] = name
    called = tuple((unit.strip('"'), name.strip('"')) for name, unit in names.items())
    calls = "".join(rest).removesuffix("\n}\n")
    return Units(_CALLED.sub(lambda m: f"@{names.get(m[1], m[1])}(", calls), tuple(kernels), called)


class _Function(NamedTuple):
    """A function of a module: the parts of its first line, its other lines, the names in them."""

    linkage: str
    result: str
    name: str
    parameters: str
    attributes: str
    body: str
    used: frozenset[str]


def apart(text: str) -> tuple[str, str] | None:
    """Split a module into all but its plain functions, and these; None where they are short.

    A plain function that uses a variable of the module stays with it.
    """
    around: list[str] = []
    functions: list[_Function] = []
    for block in text.split("\n}\n"):
        head = _DEFINED.search(block)
        around += (block if head is None else block[: head.start()]).split("\n")
        if head is not None:
            linkage, result, name, parameters, attributes = head.groups()
            body = block[head.end() :]
            used = frozenset(_ANY_NAME.findall(body))
            functions.append(_Function(linkage, result, name, parameters, attributes, body, used))
    variables = {_named(line) for line in around if line.startswith("@")}
    plain: list[_Function] = []
    others: list[_Function] = []
    for one in functions:
        is_plain = "optnone" in one.attributes and variables.isdisjoint(one.used)
        (plain if is_plain else others).append(one)
    if sum(len(one.body) for one in plain) < _SHORTEST_PLAIN:
        return None
    frame = [line for line in around if not line.startswith("@")]
    return _module(around, others, plain), _module(frame, plain, others)


def _module(around: list[str], functions: list[_Function], others: list[_Function]) -> str:
    """A module of these functions, with the lines around them; the others are declared."""
    used = frozenset[str]().union(*(one.used for one in functions))
    asked = frozenset[str]().union(*(one.used for one in others))
    lines = [a for a in around if not a.startswith("declare ") or _named(a) in used]
    for one in others:
        if one.name in used:
            linkage = "hidden " if one.linkage else ""
            lines.append(f"declare {linkage}{one.result}{one.name}{one.parameters}")
    for one in functions:
        linkage = "hidden " if one.linkage and one.name in asked else one.linkage
        head = f"define {linkage}{one.result}{one.name}{one.parameters}{one.attributes}"
        lines.append(f"{head}{{{one.body}\n}}")
    return "\n".join(lines) + "\n"


def _named(line: str) -> str:
    """The first name in a line."""
    name: str = _ANY_NAME.findall(line)[0]
    return name


def _outside(block: str) -> str:
    """The text before the function that ends a block."""
    return block.partition("define ")[0]
