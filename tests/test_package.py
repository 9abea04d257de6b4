from __future__ import annotations

import subprocess
import sys

import pytest

import ostinato


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys, ostinato; ostinato.Options; ostinato.InputError; ostinato.__version__;"
        "print([m for m in ('numpy', 'onnx', 'onnx_ir', 'llvmlite', 'rich') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr


@pytest.mark.parametrize("name", ostinato.__all__)
def test_every_public_name_is_there_and_listed(name: str) -> None:
    assert getattr(ostinato, name) is not None
    assert name in dir(ostinato)


@pytest.mark.parametrize("name", ["backend", "streaming"])
def test_rooms_are_imported_when_they_are_used(name: str) -> None:
    code = f"import ostinato; print(ostinato.{name}.__name__)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == f"ostinato.{name}", result.stderr
    assert name in dir(ostinato)


def test_names_that_do_not_exist_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="InferenceSesion"):
        ostinato.InferenceSesion  # noqa: B018
