"""Every public name of onnxruntime is there, and those without a counterpart say so when used."""

from __future__ import annotations

import enum
import types

import pytest

import ostinato.onnxruntime as ours
from ostinato.onnxruntime.absent import REASONS, found
from ostinato.onnxruntime.capi import onnxruntime_pybind11_state as our_state

CLASSES = ("IOBinding", "InferenceSession", "OrtDevice", "OrtValue")


def public(thing: object) -> list[str]:
    """Names that are no modules, which a package imports for itself."""
    names = (name for name in dir(thing) if not name.startswith("_"))
    return [n for n in names if not isinstance(getattr(thing, n), types.ModuleType)]


def test_no_public_name_of_onnxruntime_is_missing() -> None:
    real = pytest.importorskip("onnxruntime")
    state = real.capi.onnxruntime_pybind11_state
    missing = [name for name in public(real) if not hasattr(ours, name)]
    missing += [f"capi.{name}" for name in public(state) if not hasattr(our_state, name)]
    for name in CLASSES:
        theirs, own = getattr(real, name), getattr(ours, name)
        missing += [f"{name}.{method}" for method in public(theirs) if not hasattr(own, method)]
    # Where the package hands on an exception of its own import.
    assert set(missing) <= {"import_capi_exception"}
    enums = ("OrtHardwareDeviceType", "OrtDeviceVendorId", "OrtSparseFormat")
    # The newest version for Python 3.10 lacks one of them.
    for name in (each for each in enums if hasattr(real, each)):
        members = {
            key: int(getattr(v, "value", v)) for key, v in getattr(real, name).__members__.items()
        }
        assert {each.name: each.value for each in found(name)} == members


@pytest.mark.parametrize("name", sorted(REASONS))
def test_what_is_not_there_says_why(name: str) -> None:
    with pytest.raises(our_state.NotImplemented, match=f"{name} is not there with compiled models"):
        getattr(ours, name)()


def test_parts_of_what_is_not_there_say_why_as_well() -> None:
    with pytest.raises(our_state.NotImplemented, match=r"SparseTensor\.sparse_coo_from"):
        ours.SparseTensor.sparse_coo_from_numpy([1])
    assert not isinstance(3, ours.SparseTensor)
    assert ours.OrtHardwareDeviceType.CPU == 0 and issubclass(ours.OrtSparseFormat, enum.IntEnum)
    assert our_state.kSameAsRequested == 1
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ours.nothing  # noqa: B018


def test_a_star_import_leaves_built_in_names_alone() -> None:
    names: dict[str, object] = {}
    exec("from ostinato.onnxruntime import *", names)
    assert "InferenceSession" in names and "NotImplemented" not in names
