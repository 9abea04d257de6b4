"""docs/operators.md says what the registry of lowering rules and the passes say."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest

from tools.operators_report import has_reference, how, rows

PAGE = Path(__file__).parent.parent / "docs" / "operators.md"


def test_the_page_is_up_to_date() -> None:
    text = PAGE.read_text()
    if f"onnx {onnx.__version__}," not in text:
        pytest.skip("written with another version of onnx")
    listed = dict(re.findall(r"^\| `(\w+)` \| [\d, ]+ \| ([^|]+) \|", text, re.M))
    made = {row.name: row.how for row in rows()}
    assert listed == made, "run: python -m tools.operators_report --write docs/operators.md"


def test_kinds() -> None:
    assert how("Add", 14) == "native"
    assert how("GRU", 22) == "other ops (`recurrent_to_scan`)"
    assert how("StringConcat", 20) == "reference kernel"
    assert how("Nothing", 1) == "refused"
    assert has_reference("ai.onnx.ml", "Scaler", 1)
    assert not has_reference("ai.onnx.ml", "ZipMap", 1)


def test_remarks_fit_in_a_table() -> None:
    for row in rows():
        assert "\n" not in row.remark
        assert "|" not in row.remark.replace("\\|", "")
