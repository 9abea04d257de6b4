"""docs/gradients.md says what the registry of gradient rules says, and its example runs."""

from __future__ import annotations

import re
from pathlib import Path

from ostinato.autodiff.registry import RULES
from tools.gradients_report import BEGIN, END, document, returns_floats, rewritten, without

PAGE = Path(__file__).parent.parent / "docs" / "gradients.md"


def test_the_page_is_up_to_date() -> None:
    written = PAGE.read_text().split(BEGIN)[1].split(END)[0].strip()
    assert written == document(), "run: python -m tools.gradients_report --write docs/gradients.md"


def test_the_example_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    exec(compile(code, str(PAGE), "exec"), {})


def test_kinds() -> None:
    assert "GRU" in rewritten()
    assert not set(rewritten()) & set(RULES)
    assert "DequantizeLinear" in without()
    assert not returns_floats("ArgMax")
    assert returns_floats("Add")
