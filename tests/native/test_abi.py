from __future__ import annotations

import ctypes

import pytest

from ostinato.errors import RunError
from ostinato.native import abi as module

pytestmark = pytest.mark.host


def test_another_layout_of_arrays_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    module.require_array_layout()
    head, *fields = module._ArrayObject._fields_
    shifted = {"_fields_": [head, ("more", ctypes.c_void_p), *fields]}
    monkeypatch.setattr(module, "_ArrayObject", type("Shifted", (ctypes.Structure,), shifted))
    with pytest.raises(RunError, match="install a version of NumPy"):
        module.require_array_layout()
