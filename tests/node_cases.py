"""Models of one node in the backend test suite of onnx, with inputs and results.

The package computes all results anew when it is asked for the cases, which takes five seconds, and
every worker of a run asks. So they are kept in pytest's cache, for the versions they are made with;
the first worker of the first run makes them.
"""

from __future__ import annotations

import os
import pickle
import platform
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path

from onnx.backend.test import loader
from onnx.backend.test.case.test_case import TestCase

# Names the folder; `tests/conftest.py` sets it. Without one nothing is kept.
FOLDER = "OSTINATO_TESTS_NODE_CASES"


@cache
def node_cases() -> list[TestCase]:
    """All cases, in the order of the package; nobody may change them."""
    from tests import reference_pool  # the reference evaluator takes long to import

    reference_pool.install()
    if FOLDER not in os.environ:
        return _computed()
    versions = [f"{name}-{version(name)}" for name in ("onnx", "numpy", "protobuf", "ml_dtypes")]
    made_by = [sys.implementation.cache_tag or "", platform.machine(), *versions]
    path = Path(os.environ[FOLDER], "-".join(made_by))
    with _alone(path.with_name(f"{path.name}.lock")):
        try:
            cases: list[TestCase] = pickle.loads(path.read_bytes())
        except (OSError, EOFError, pickle.UnpicklingError):
            cases = _computed()
            # Where nobody can be kept waiting, workers write at the same time.
            draft = path.with_name(f"{path.name}.{os.getpid()}")
            draft.write_bytes(pickle.dumps(cases))
            draft.replace(path)
    return cases


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One worker at a time is inside, if the system can see to that: the others find its cases."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _computed() -> list[TestCase]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # results are made of divisions by zero, too
        return loader.load_model_tests(kind="node")
