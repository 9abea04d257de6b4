"""What a file may import, and which names it may know.

Imports make no circle, between files as between rooms, and run downwards through the layers that
pyproject.toml lists, for import-linter as well; those inside of functions count. An import inside
of a function needs a reason, and stands in `DEFERRED`.

Below `ostinato.ops` no ONNX operator's name appears: those rooms know loops and kernels alone.

An operator's name in `sizes`, `program`, `schedule`, `codegen`, `native` or `runtime` means that
a special case crept in where a general rule belongs. What counts as an appearance:

* in code, an identifier that is such a name (`MatMul`) or has the name of a recurrent or linear
  operator among its words (`emit_gru`, `is_lstm`, `ConvTile`);
* a string that is such a name (`op == "Conv"`);
* in comments, docstrings and longer strings, a name that is no English word (`GRU`, `MatMul`).
  Single capitalised words start sentences (`Add the bias`), so they may stand there.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import onnx.defs
import pytest

import ostinato

ROOT = Path(ostinato.__file__).parent

HELP = "`ostinato --help` answers before it is loaded"
CACHED = "a start from the cache does without it"
PEER = "only who compares or measures has it installed"
RARE = "slow to load, and few models or sessions need it"

DEFERRED = {
    HELP: {
        "cli": "cli.app",
        "cli.build": "aot.build",
        "cli.cache": "native.cache",
        "cli.common": "rich rich.console rich.progress rich.table",
        "cli.compare": "numpy",
        "cli.demo": "demo",
        "cli.feeds": "google.protobuf.message numpy onnx",
        "cli.inspect": "compiler optimization runtime.build schedule.pipeline streaming",
        "cli.profile": ("profiling profiling.page profiling.roofline profiling.trace_events"),
        "cli.quantize": "onnx onnx_ir quantization quantization.samples",
        "cli.run": "numpy",
        "cli.serve": "asyncio importlib.util native.threads serve.cluster serve.lanes serve.server",
        "cli.stream": "onnx streaming streaming.convert",
        "cli.stream_check": "numpy",
        "cli.witness": "concurrent.futures concurrent.futures.process multiprocessing",
        "element_types": "numpy",
    },
    PEER: {"cli.witness": "onnx.reference onnxruntime"},
    CACHED: {
        "codegen.llvm": "llvmlite.binding",
        "codegen.target": "llvmlite.binding",
        "codegen.objects": "llvmlite llvmlite.binding",
        "native.trampoline": "codegen.llvm",
        "onnxruntime.edited": "onnx onnx.external_data_helper",
        "onnxruntime.session": "onnx",
        "runtime.build": "compiler onnx onnx_ir",
        "runtime.session": "runtime.growing runtime.pool runtime.states runtime.stream",
        "stages.fallback": "onnx.reference reference.kernels stages.one_node",
        "stages.specialized": "stages.one_node",
    },
    RARE: {
        "codegen.objects": "codegen.perf",
        "codegen.target": "codegen.described",
        "element_types": "ml_dtypes",
        "model.contributed": "onnx.reference",
        "optimization": "autodiff.nodes",
        "options": "tempfile",
        "passes.normalise.inline_functions": "onnx_ir.passes.common",
        "passes.simplify.constant_folding": (
            "onnx.reference onnx.reference.ops._op_list reference.kernels"
        ),
        "runtime.pool": "runtime.async_stream",
        "ray": "ray.serving",
        "ray.predictor": "filelock",
    },
}
"""Imports inside of functions: reason, file and what it imports there."""

HELD_TYPES = [
    # An object makes its parts, which ask it; each knows the other by its type.
    ["codegen.addresses", "codegen.expressions", "codegen.loads"],
    ["onnxruntime.binding", "onnxruntime.session"],
    ["ops.core.builder", "ops.core.moved_rows"],
    # Sessions make streams and pools, which hold the session: users get from one to the other.
    [
        "runtime.async_stream",
        "runtime.growing",
        "runtime.pool",
        "runtime.pool_states",
        "runtime.session",
        "runtime.stepped",
        "runtime.stream",
    ],
]
"""Files that import each other for types only."""

ROOMS = ("sizes", "program", "schedule", "codegen", "native", "runtime")
OPERATORS = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}

# Identifiers that mean something else below the ops, though ONNX has an operator of that name.
ALLOWED = {
    "Loop": "the statement of the loop program",
    "Cast": "the expression of the loop program that changes an element type",
    "Size": "the integer expression of the loop program that a dimension is",
    "Tile": "the blocking that a schedule gives a kernel",
    "Shape": "the name of a tuple type of dimensions",
}

# Capitalised like a word, yet no word that a sentence would start with.
NO_WORDS = {"Conv", "Einsum", "Elu", "Gelu", "Gemm", "Relu", "Scan", "Softmax", "Softplus"}
DISTINCTIVE = NO_WORDS | {name for name in OPERATORS if not re.fullmatch("[A-Z][a-z]+", name)}
FAMILIES = {"gru", "lstm", "rnn", "scan", "conv", "gemm", "matmul"}


def _words(identifier: str) -> set[str]:
    """The lower-case words of a snake_case or CamelCase identifier."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)
    return {part.lower() for part in parts}


def _identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        for field in ("id", "attr", "name", "arg", "asname", "rest"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                for part in value.split("."):
                    yield line, part


def _texts(tree: ast.AST, source: str) -> Iterator[tuple[int, str]]:
    """String constants, docstrings among them, and comments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def appearances(source: str) -> list[str]:
    """Where `source` names an operator, as "line: name"."""
    tree = ast.parse(source)
    found = []
    for line, identifier in _identifiers(tree):
        named = identifier in OPERATORS and identifier not in ALLOWED
        if named or _words(identifier) & FAMILIES:
            found.append(f"{line}: {identifier}")
    for line, text in _texts(tree, source):
        if text in OPERATORS:
            found.append(f"{line}: {text!r}")
        else:
            names = set(re.findall(r"\w+", text)) & DISTINCTIVE
            found += [f"{line}: {name}" for name in sorted(names)]
    return found


@pytest.mark.parametrize(
    "source",
    [
        'if node.op_type == "GRU": pass',
        'KERNELS = {"Add": 1}',
        "from x import MatMul",
        "def emit_gru(): pass",
        "class ConvTile: pass",
        "call(lstm_cell=1)",
        "x = 1  # as Conv needs it",
        '"""Fuses a GRU cell."""',
        'raise E("only for LayerNormalization")',
        'match op:\n    case "If": pass',
        'assert kind != "Loop"',
    ],
)
def test_an_operator_is_found(source: str) -> None:
    assert appearances(source)


@pytest.mark.parametrize(
    "source",
    [
        "class Loop: pass",
        '"""Add the bias. Split what is left; Where both hold, stop."""',
        'OPS = ("add", "max", "tanh", "select")',
        "def contraction(accumulators, lanes): pass",
        "x = max(a, b)  # Max over the reduction axis",
    ],
)
def test_plain_words_are_not(source: str) -> None:
    assert not appearances(source)


@pytest.mark.parametrize("room", ROOMS)
def test_room_knows_no_operator(room: str) -> None:
    folder = Path(ostinato.__file__).parent / room
    files = sorted(folder.rglob("*.py"))
    assert files, f"nothing in {folder}"
    found = {
        str(file.relative_to(folder.parent)): names
        for file in files
        if (names := appearances(file.read_text(encoding="utf-8")))
    }
    assert not found


def _imports(
    tree: ast.AST, deferred: bool = False, typed: bool = False
) -> Iterator[tuple[str, str, bool, bool]]:
    """Module, name imported from it (or ""), whether inside of a function, and for types only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.expr):
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, "", deferred, typed) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative import"
            module = str(node.module)
            yield from ((module, alias.name, deferred, typed) for alias in node.names)
        else:
            function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            guard = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            yield from _imports(node, deferred or function, typed or guard)


@cache
def _all_imports_of(file: Path) -> list[tuple[str, str, bool, bool]]:
    return list(_imports(ast.parse(file.read_text(encoding="utf-8"))))


def _imports_of(file: Path, types: bool = False) -> list[tuple[str, str, bool]]:
    """Module, name and whether it waits. types: whether imports for types only count as well."""
    return [(m, n, waits) for m, n, waits, typed in _all_imports_of(file) if types or not typed]


@cache
def _files() -> dict[str, Path]:
    """The files of the package by module name; a room is its `__init__`."""
    names = {}
    for file in sorted(ROOT.rglob("*.py")):
        parts = file.relative_to(ROOT.parent).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return names


def _edges(types: bool = False) -> dict[str, set[str]]:
    """Which files of the package each one imports."""
    files = _files()
    edges: dict[str, set[str]] = {}
    for name, file in files.items():
        found = _imports_of(file, types)
        named = {f"{m}.{n}" if f"{m}.{n}" in files else m for m, n, _ in found}
        edges[name] = {module for module in named if module in files and module != name}
    return edges


def _layers() -> dict[str, int]:
    """The layer of each room in pyproject.toml, the highest first."""
    tomllib = pytest.importorskip("tomllib")
    contracts = tomllib.loads((ROOT.parent / "pyproject.toml").read_text(encoding="utf-8"))
    (table,) = (
        contract["layers"]
        for contract in contracts["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
    )
    return {room: height for height, rooms in enumerate(table) for room in rooms.split(" | ")}


def test_files_import_downwards_only() -> None:
    """What import-linter checks, and that its table has all rooms."""
    layers = _layers()
    upward = []
    for name, targets in _edges(types=True).items():
        room = ".".join(name.split(".")[:2])
        if room in ("ostinato", "ostinato.__main__"):
            continue
        for target in targets - {"ostinato"}:
            below = ".".join(target.split(".")[:2])
            if below != room and layers[room] >= layers[below]:
                upward.append(f"{name} -> {target}")
    assert not upward


def circles(edges: dict[str, set[str]]) -> list[str]:
    """What is left of a graph when files that import nothing that is left are taken away."""
    left = {name: set(targets) for name, targets in edges.items()}
    while done := {name for name, targets in left.items() if not targets & left.keys()}:
        left = {name: targets for name, targets in left.items() if name not in done}
    return sorted(left)


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["a", "b", "c"]


def test_files_import_one_another_in_no_circle() -> None:
    edges = _edges()
    assert len(edges) > 200 and sum(map(len, edges.values())) > 1000
    assert not circles(edges)


def test_types_make_those_circles_only_that_are_listed() -> None:
    edges = _edges(types=True)
    whole = {f"ostinato.{name}": names for names in HELD_TYPES for name in names}
    for name in edges:
        # What holds each other is taken as one file.
        edges[name] = {
            f"ostinato.{whole[target][0]}" if target in whole else target
            for target in edges[name] - {"ostinato"}
        }
    for names in HELD_TYPES:
        first, *others = (f"ostinato.{name}" for name in names)
        assert len(circles({name: _edges(types=True)[name] for name in (first, *others)})) > 1
        edges[first] = set().union(*(edges.pop(name) for name in others), edges[first]) - {first}
    assert not circles(edges)


def test_imports_inside_of_functions_have_a_reason() -> None:
    prefix = "ostinato."
    found = set()
    files = _files()
    for name, file in files.items():
        for module, item, deferred in _imports_of(file):
            if deferred:
                whole = f"{module}.{item}" if f"{module}.{item}" in files else module
                found.add((name.removeprefix(prefix), whole.removeprefix(prefix)))
    listed = {
        (file, module)
        for files in DEFERRED.values()
        for file, modules in files.items()
        for module in modules.split()
    }
    assert sorted(found - listed) == [] and sorted(listed - found) == []


def _loaded(code: str) -> set[str]:
    """The modules that a new process has loaded when it has run this code."""
    code += "\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_help_and_sessions_load_what_they_need() -> None:
    assert not {"numpy", "onnx", "llvmlite"} & _loaded("import ostinato.cli.app")
    heavy = {"onnx", "onnx_ir", "asyncio", "ostinato.compiler", "ostinato.program.nodes"}
    heavy |= {"ostinato.runtime.stream", "ostinato.runtime.growing", "ostinato.runtime.pool"}
    assert not heavy & _loaded("import ostinato.runtime.session")
