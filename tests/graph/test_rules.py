from __future__ import annotations

import pytest

from ostinato.graph.rules import Rules


def test_an_operator_has_one_rule() -> None:
    rules = Rules("gradient")
    assert rules.register("Add", "Sum")(abs) is abs
    assert rules == {"Add": abs, "Sum": abs}
    with pytest.raises(ValueError, match="Add has a gradient rule already"):
        rules.register("Sub", "Add")(abs)
