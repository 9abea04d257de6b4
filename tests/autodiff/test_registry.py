from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from ostinato.autodiff import gradient  # noqa: F401 (its import registers the rules)
from ostinato.autodiff.registry import RULES
from tests.autodiff.test_cases import CANDIDATES

FOLDER = Path(__file__).parent


@cache
def checked() -> frozenset[str]:
    """The operators of models that the tests of this folder make, written as text or by name."""
    words = {node.op_type for case in CANDIDATES for node in case.model.graph.node}
    for path in FOLDER.rglob("test_*.py"):
        if path.name in ("test_cases.py", "test_registry.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words.update(re.findall(r"\w+", node.value))
    return frozenset(words)


@pytest.mark.parametrize("op_type", sorted(RULES))
def test_every_rule_is_checked(op_type: str) -> None:
    assert op_type in checked(), "add a check against central differences"
