"""Random modules of PyTorch made of layers, and of operators on all types and shapes, as text.

A statement is kept where PyTorch itself runs it on the inputs, so that tables of expressions need
not say which operands fit. Inputs have the axes batch, time and width in front.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tools.fuzz.choosing import Chooser
from tools.fuzz.layer_tables import EXPRESSIONS, LAYERS, PAIRS, WRITES

BATCH, STEPS, WIDTH = 3, 5, 4
# Of further calls, where sizes may change.
OTHER_SIZES = ((2, 7), (6, 4))
_MOST_ELEMENTS, _MOST_MAGNITUDE = 4096, 1e3
_TRIES = 40
_DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "int8")
_OTHER_TYPES = (*_DTYPES, "int16", "complex64", "bool")
_HOLE = re.compile(r"\{([a-z]+)(\d?)\}|\{([A-Z])\}")

_HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import cond
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.scan import scan


class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.Parameter(torch.randn(4, 4) * 0.5)
        self.b = nn.Parameter(torch.randn(4) * 0.5)
        self.register_buffer("held", torch.zeros(4))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
"""


def inputs(seed: int, batch: int = BATCH, steps: int = STEPS) -> dict[str, Any]:
    """The arguments of a call: x, y floats, k indices, m a mask, z of another type."""
    import torch

    torch.manual_seed(seed)
    kind = _OTHER_TYPES[seed % len(_OTHER_TYPES)]
    dtype = getattr(torch, kind)
    z = torch.randn(batch, WIDTH, dtype=dtype if dtype.is_complex else torch.float32)
    z = z > 0 if kind == "bool" else (z * 3).abs().to(dtype) if kind[0] in "iu" else z.to(dtype)
    found = {
        "x": torch.randn(batch, steps, WIDTH),
        "y": torch.randn(batch, WIDTH),
        "k": torch.randint(0, WIDTH, (batch, steps)),
        "m": torch.rand(batch, steps) > 0.3,
        "z": z,
    }
    if seed % 3 == 1:
        return {name: _strided(tensor) for name, tensor in found.items()}
    return found


def _strided(tensor: Any) -> Any:
    """The same elements, the first axes exchanged in memory, with gaps between them."""
    import torch

    room = torch.stack([tensor, tensor], -1).transpose(0, 1).contiguous()
    return room.transpose(0, 1)[..., 0]


def _cond(condition: Any, then: Any, otherwise: Any, operands: Any) -> Any:
    """As `torch.cond`, which compiles what it is called with."""
    return (then if condition else otherwise)(*operands)


def _while_loop(condition: Any, body: Any, values: Any) -> Any:
    """As PyTorch's, of which the same holds."""
    while condition(*values):
        values = body(*values)
    return values


def _scan(step: Any, state: Any, xs: Any, reverse: bool = False) -> Any:
    """As PyTorch's, of which the same holds."""
    import torch
    from torch.utils import _pytree as pytree

    steps = range(pytree.tree_leaves(xs)[0].shape[0])
    made = []
    for t in reversed(steps) if reverse else steps:
        state, results = step(state, pytree.tree_map(lambda x, t=t: x[t], xs))
        made.append(results)
    rows = made[::-1] if reverse else made
    return state, pytree.tree_map(lambda *each: torch.stack(each), *rows)


@dataclass
class _Layers(Chooser):
    """A module under construction.

    head, lines: of `__init__` and `forward`. values: what its names are for the example. scope: the
        names that expressions may use.
    """

    has_breaks: bool
    head: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    scope: dict[str, Any] = field(default_factory=dict)
    bound: dict[str, str] = field(default_factory=dict)
    count: int = 0

    def start(self, seed: int) -> None:
        import torch

        exec(_HEAD, self.scope)
        self.scope |= {"cond": _cond, "while_loop": _while_loop, "scan": _scan}
        self.owner = self.scope["Module"]()
        self.scope["self"] = self.owner
        self.values = dict(inputs(seed))
        self.values |= {"self.p": self.owner.p, "self.b": self.owner.b, "self.held": torch.zeros(4)}

    def operand(self, kind: str, rank: str) -> str:
        """A value of a kind, f for floats, i for integers, b, c or a for any, of this rank."""
        found = []
        for name, tensor in self.values.items():
            dtype = tensor.dtype
            letter = "b" if str(dtype) == "torch.bool" else "i"
            letter = "f" if dtype.is_floating_point else "c" if dtype.is_complex else letter
            if kind in (letter, "a") and rank in ("", str(tensor.dim())):
                found += [name] * (1 if "." in name else 3)
        if not found:
            raise LookupError
        recent = found[-9:] if self.chance(0.4) else found
        return str(self.choose(recent))

    def filled(self, text: str) -> str:
        """Text with values and numbers in the places of its holes.

        The first operand gives {L}, {C} and {R}: its last and second size, and its rank.
        """
        bound: dict[str, str] = dict(self.bound)

        def hole(match: re.Match[str]) -> str:
            kind, rank, size = match.groups()
            if size:
                return bound[size]
            if kind in ("n", "k", "d", "r", "t", "o"):
                return str(
                    {
                        "n": lambda: self.choose((-2, -1, 0, 1, 2, 3)),
                        "k": lambda: self.choose((1, 1, 2, 2, 3)),
                        "d": lambda: self.choose((-1, -1, 0, 1, -2, 2)),
                        "r": lambda: self.choose((0.3, -0.5, 1.5, 2.0, 0.0, -1.0)),
                        "t": lambda: "torch." + str(self.choose(_DTYPES)),
                        "o": lambda: self.choose(("True", "False")),
                    }[kind]()
                )
            name = self.operand(kind, rank)
            shape = self.values[name].shape
            if len(shape) and "L" not in bound:
                bound["L"], bound["R"] = str(shape[-1]), str(len(shape))
                bound["C"] = str(shape[min(1, len(shape) - 1)])
            return name

        try:
            return _HOLE.sub(hole, text)
        except KeyError:
            raise LookupError from None

    def value_of(self, expression: str) -> Any:
        """What PyTorch makes of an expression; raises `LookupError` where it is of no use."""
        import torch

        scope = {**self.scope, **{n: v for n, v in self.values.items() if "." not in n}}
        try:
            with torch.no_grad():
                found = eval(expression, scope)
        except Exception:
            raise LookupError from None
        self._judge(found)
        return found

    def _judge(self, found: Any) -> None:
        import torch

        usable = isinstance(found, torch.Tensor) and 0 < found.numel() <= _MOST_ELEMENTS
        if not usable or found.layout != torch.strided:
            raise LookupError
        is_inexact = found.is_floating_point() or found.is_complex()
        if is_inexact and not bool((found.abs() < _MOST_MAGNITUDE).all()):
            raise LookupError

    def name(self) -> str:
        self.count += 1
        return f"a{self.count}"

    def expression(self) -> None:
        text = self.filled(self.choose(EXPRESSIONS[self.choose([*EXPRESSIONS])]))
        found = self.value_of(text)
        name = self.name()
        self.lines.append(f"{name} = {text}")
        self.values[name] = found

    def layer(self) -> None:
        """A layer of `torch.nn`, and its call."""
        import torch

        made, _, call = self.choose(LAYERS).partition(" | ")
        name = self.name()
        call = self.filled(call.replace("M(", f"self.l{name}("))
        self.bound = self._sizes_in(call)
        made = self.filled(made)
        self.bound = {}
        try:
            torch.manual_seed(self.count)
            setattr(self.owner, f"l{name}", eval(made, self.scope))
        except Exception:
            raise LookupError from None
        self.values[name] = self.value_of(call)
        self.head.append(f"self.l{name} = {made}")
        self.lines.append(f"{name} = {call}")

    def _sizes_in(self, call: str) -> dict[str, str]:
        first = re.search(r"\((self\.\w+|\w+)", call)
        tensor = self.values.get(first.group(1)) if first else None
        if tensor is None or not tensor.dim():
            raise LookupError
        shape = tensor.shape
        second = str(shape[min(1, len(shape) - 1)])
        return {"L": str(shape[-1]), "C": second, "R": str(len(shape))}

    def pair(self) -> None:
        """An operator of several results."""
        text, count = self.choose(PAIRS)
        text = self.filled(text)
        names = [self.name() for _ in range(count)]
        found = [self.value_of(f"({text})[{place}]") for place in range(count)]
        self.lines.append(f"{', '.join(names)} = {text}")
        self.values |= dict(zip(names, found, strict=True))

    def write(self) -> None:
        """A copy that is written into, maybe read through a view that was there before."""
        import torch

        source = self.operand(self.choose("ffffia"), "")
        name = self.name()
        copied = self.choose(("{}.clone()", "{}.clone()", "({} * 1)", "torch.zeros_like({})"))
        lines = [f"{name} = {copied.format(source)}"]
        view = self.choose((None, None, "[1:]", ".transpose(0, -1)", ".reshape(-1)", "[..., ::2]"))
        if view:
            lines.append(f"{name}v = {name}{view}")
        for _ in range(self.choose((1, 2, 3))):
            text = self.filled(self.choose(WRITES))
            lines.append(re.sub(r"\bo\b", name, text))
        scope = {**self.scope, **{n: v for n, v in self.values.items() if "." not in n}}
        try:
            with torch.no_grad():
                exec("\n".join(lines), scope)
        except Exception:
            raise LookupError from None
        for made in (name, f"{name}v")[: 1 + bool(view)]:
            self._judge(scope[made])
            self.values[made] = scope[made]
        self.lines += lines

    def state(self) -> None:
        """A buffer that lasts, read or written."""
        text = self.choose(
            (
                "self.held.copy_({f2}.detach().mean(0)[:4])",
                "self.held = self.held * 0.5 + {f2}.detach().amax(0)",
                "self.held += self.b.detach() * 0.25",
                "self.calls += 1",
                "self.held[1:3] = self.calls.float()",
                "self.calls = self.calls * 2 + 1",
            )
        )
        self.lines.append(self.filled(text))

    def loop(self) -> None:
        """Steps in Python over an axis of what is there, some of which write."""
        source, h = self.operand("f", "3"), self.name()
        update = self.choose(
            (
                "torch.tanh({h} @ self.p + u[..., :4] * {r})",
                "torch.where(u.mean() > 0, {h} * 0.5, {h} + self.b)",
                "self.b * {h} + u.amax(-1, keepdim=True)",
                "torch.sigmoid({h}) * u[..., -1:].flip(0) + {h}.roll(1, -1) * 0.3",
                "F.layer_norm({h} + u[..., :1], (4,), self.b)",
            )
        ).replace("{h}", h)
        axis = self.choose((0, 1, 1))
        lines = [f"{h} = {self.operand('f', '2')} * 1.0", f"{h}all = []"]
        order = self.choose((f"{source}.unbind({axis})", f"{source}.unbind({axis})[::-1]"))
        lines += [f"for u in {order}:", f"    {h} = {self.filled(update)}"]
        lines.append(f"    {h}all.append({h})")
        lines.append(f"{h}s = torch.stack({h}all, {self.choose((0, 1, -1))})")
        self._tried(lines, (h, f"{h}s"))

    def control(self) -> None:
        """`torch.cond`, `while_loop` or `scan`."""
        f, g, h = self.operand("f", "2"), self.operand("f", "3"), self.name()
        # PyTorch 2.13 gives wrong gradients to a loop without steps.
        count = self.choose((2, 3, 5))
        back = self.choose(("", ", reverse=True"))
        lines = self.choose(
            (
                [f"{h} = cond({f}.sum() > 0, lambda u: u * 2, lambda u: u.flip(0), ({f} * 1,))"],
                [
                    f"{h} = while_loop(lambda t, u: t < {count}, lambda t, u: (t + 1, "
                    f"torch.tanh(u * 0.7 + t)), (torch.tensor(0), {f} * 1.0))[1]"
                ],
                [
                    f"{h}, {h}b = while_loop(lambda u, t: (t < {count}), lambda u, t: "
                    f"(u.roll(1, 0) + u * 0.5, t + 2), ({f} * 1.0, torch.tensor(1)))"
                ],
                [
                    f"def {h}step(u, v):",
                    "    w = torch.tanh(u + v)",
                    "    return w, w.cumsum(0)",
                    f"{h}, {h}b = scan({h}step, {f} * 1.0, "
                    f"{g}.transpose(0, {self.choose((1, 1, 2))}) * 1.0{back})",
                ],
                [
                    f"def {h}step(u, v):",
                    "    return (u[0] * 0.5 + v[0].sum(-1, keepdim=True), u[1] + 1), "
                    "(u[0] * u[1], v[1])",
                    f"({h}, _), ({h}b, _) = scan({h}step, ({f} * 1.0, torch.tensor(2)), "
                    f"({g} * 1.0, {g} * 2.0){back})",
                ],
            )
        )
        names = (h, f"{h}b") if f"{h}b" in lines[-1] else (h,)
        self._tried(lines, names)

    def _tried(self, lines: list[str], names: tuple[str, ...]) -> None:
        import torch

        scope = {**self.scope, **{n: v for n, v in self.values.items() if "." not in n}}
        try:
            with torch.no_grad():
                exec("\n".join(lines), scope)
            for name in names:
                self._judge(scope[name])
        except Exception:
            raise LookupError from None
        self.values |= {name: scope[name] for name in names}
        self.lines += lines

    def graph_break(self) -> None:
        """Something that ends a graph of Dynamo."""
        if not self.has_breaks:
            raise LookupError
        name = self.operand("f", "")
        self.lines += self.choose(
            (
                ["torch._dynamo.graph_break()"],
                [f"if {name}.sum() > 0: {name} = {name} * 0.5"],
                [f"{name} = {name} * ({name}.amax().item() > 1)"],
            )
        )

    def results(self) -> str:
        """Several values, nested."""
        names = [name for name in self.values if name not in ("x", "y", "k", "m", "z", "self.p")]
        names = [*names[-4:], *(self.choose(names) for _ in range(2))]
        return str(
            self.choose(
                (
                    "({}, {}, {}, {})",
                    "{{'a': {}, 'b': ({}, [{}, None, 3]), 'c': {}}}",
                    "[{}, ({}, ({},)), {{'x': {}}}]",
                    "({}, {}), 'text', {}, {}",
                )
            )
        ).format(*names[:4])


def random_layers(seed: int) -> str:
    """The source of a class `Module`, whose call takes what `inputs` gives by name."""
    made = _Layers(np.random.default_rng(seed), has_breaks=seed % 4 == 3)
    made.start(seed)
    kinds = [(9, made.expression), (5, made.layer), (2, made.pair), (3, made.write)]
    kinds += [(1, made.state), (1, made.loop), (1, made.control), (1, made.graph_break)]
    for _ in range(int(made.random.integers(3, 9))):
        kind = made.weighed(kinds)
        for _ in range(_TRIES):
            try:
                kind()
            except LookupError:
                continue
            break
    made.lines.append(f"return {made.results()}")
    head = "".join(f"        {line}\n" for line in made.head)
    body = "".join(f"        {line}\n" for line in made.lines)
    return f"{_HEAD}{head}\n    def forward(self, x, y, k, m, z):\n{body}"
