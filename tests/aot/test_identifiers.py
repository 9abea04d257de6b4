from __future__ import annotations

import pytest

from ostinato.aot.identifiers import checked_identifier, model_identifier, unique
from ostinato.errors import OptionError


def test_identifiers_are_plain_and_different() -> None:
    names = ["x", "x", "a:b", "a.b", "1", "class", "I", "Größe", "::", "x_2", "size_t", "é"]
    assert unique(names, ["object"]) == [
        "x",
        "x_2",
        "a_b",
        "a_b_2",
        "n1",
        "class_2",
        "I_2",
        "Gro_e",
        "unnamed",
        "x_2_2",
        "size_t_2",
        "e",
    ]


def test_names_of_files_become_prefixes() -> None:
    files = ["denoiser", "my-model.v2", "2nd", "float", "time", "main"]
    assert [model_identifier(file) for file in files] == [
        "denoiser",
        "my_model_v2",
        "n2nd",
        "float_model",
        "time_model",
        "main_model",
    ]


@pytest.mark.parametrize("name", ["", "1a", "a-b", "int", "printf", "a b", "_a"])
def test_names_that_c_cannot_use_are_refused(name: str) -> None:
    with pytest.raises(OptionError, match="name="):
        checked_identifier(name)
