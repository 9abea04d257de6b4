"""Below `ostinato.ops` no ONNX operator's name appears: those rooms know loops and kernels alone.

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
import tokenize
from collections.abc import Iterator
from pathlib import Path

import onnx.defs
import pytest

import ostinato

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
