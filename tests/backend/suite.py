"""The backend test suite that comes with onnx: every case for the CPU, none left out silently.

`python -m tools.backend_report` tells how much of it runs natively.
"""

from __future__ import annotations

import unittest
from functools import cache
from typing import Any

import onnx
import pytest
from onnx.backend.test import BackendTest, loader, runner
from onnx.backend.test.case.test_case import TestCase

from ostinato.backend import OstinatoBackend, OstinatoBackendRep
from tests.backend.exclusions import EXPECTED_FAILURES, SKIPPED
from tests.node_cases import node_cases

# The class of whole networks, in a file of its own: at their sizes code without LLVM's
# optimizations runs for longer than optimised code takes to compile.
NETWORKS = "OnnxBackendRealModelTest"


class FreshBackend(OstinatoBackend):
    """Compiles every model anew; refuses loudly what the suite would skip as incompatible."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        return True

    @classmethod
    def prepare(
        cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any
    ) -> OstinatoBackendRep:
        return super().prepare(model, device, cache_dir=None)


def _load(kind: str) -> list[TestCase]:
    return node_cases() if kind == "node" else loader.load_model_tests(kind=kind)


@cache
def suite() -> dict[str, type[unittest.TestCase]]:
    """The test classes with the cases for the CPU, marked as `exclusions` says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "load_model_tests", _load)
        classes = BackendTest(FreshBackend, __name__).test_cases
    for case in classes.values():
        for method in [name for name in dir(case) if name.startswith("test_")]:
            name = method.removesuffix("_cpu")
            if name == method:
                delattr(case, method)
            elif name in SKIPPED:
                setattr(case, method, pytest.mark.skip(SKIPPED[name])(getattr(case, method)))
            elif name in EXPECTED_FAILURES:
                mark = pytest.mark.xfail(reason=EXPECTED_FAILURES[name], strict=True)
                setattr(case, method, mark(getattr(case, method)))
    return classes
