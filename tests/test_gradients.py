"""docs/gradients.md says what the registry of gradient rules says, and its example runs."""

from __future__ import annotations

import re
from pathlib import Path

from ostinato.autodiff.registry import RULES
from tools.gradients_report import BEGIN, END, document, returns_floats, rewritten, without

PAGE = Path(__file__).parent.parent / "docs" / "gradients.md"


def operators(text: str) -> list[list[str]]:
    """The operators that each line names, without the remarks."""
    return [re.findall(r"`(\w+)`", re.split(r"` \| ", line)[0] + "`") for line in text.splitlines()]


def test_the_page_is_up_to_date() -> None:
    written = operators(PAGE.read_text().split(BEGIN)[1].split(END)[0].strip())
    made = operators(document())
    assert written == made, "run: python -m tools.gradients_report --write docs/gradients.md"
    assert ["Flatten", "Reshape"] in made


def test_the_example_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    exec(compile(code, str(PAGE), "exec"), {})


def test_kinds() -> None:
    assert "GRU" in rewritten()
    assert not set(rewritten()) & set(RULES)
    assert "DynamicQuantizeLinear" in without()
    assert not returns_floats("ArgMax")
    assert returns_floats("Add")
