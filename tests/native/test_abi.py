from __future__ import annotations

import ctypes

import pytest

from ostinato.errors import OptionError, RunError
from ostinato.native import abi as module


def test_flush_denormals_is_refused_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for machine in ("x86_64", "AMD64"):
        monkeypatch.setattr(module.platform, "machine", lambda machine=machine: machine)
        module.require_denormal_control()
    monkeypatch.setattr(module.platform, "machine", lambda: "aarch64")
    with pytest.raises(OptionError, match="x86-64"):
        module.require_denormal_control()


def test_another_layout_of_arrays_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    module.require_array_layout()
    head, *fields = module._ArrayObject._fields_
    shifted = {"_fields_": [head, ("more", ctypes.c_void_p), *fields]}
    monkeypatch.setattr(module, "_ArrayObject", type("Shifted", (ctypes.Structure,), shifted))
    with pytest.raises(RunError, match="install a version of NumPy"):
        module.require_array_layout()
