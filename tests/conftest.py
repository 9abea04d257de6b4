"""What a whole run of the tests shares.

Compiled models are kept in a folder of the run, which its workers share. `--fast` selects tests
that cover every room; `make test FAST=1` uses it.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

import ostinato.compiler
from ostinato.codegen import llvm
from ostinato.native.cache import Cache, KernelStore
from ostinato.options import Options
from tests import kept_objects, node_cases, unoptimized

# Of the tests of a file, `--fast` runs the first and every so manyth behind it.
FAST_STEP = 12
# Their tests are about the code that runs; all others about what it computes, which is the same
# without LLVM's optimizations.
ABOUT_CODE = (
    "aot/test_webassembly.py",
    "backend/test_onnx_networks.py",
    "codegen",
    "extras",
    "models",
    "targets",
    "test_modes.py",
)
# Theirs are about graphs alone: nothing in them looks at what became of a program. They compile for
# short registers.
ABOUT_GRAPHS = (
    "autodiff",
    "backend",
    "benchmarks/test_generation.py",
    "decoding",
    "definitions",
    "generation",
    "ops/rules",
    "passes",
    "quantization",
    "runtime/test_growing.py",
    "runtime/test_pool_states.py",
    "stages",
    "streaming",
    "training",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="every room, in a small part of the time")


def pytest_configure(config: pytest.Config) -> None:
    for marker in (
        "slow: takes seconds; left out by --fast",
        "host: depends on processor or system; `make test-targets` runs it on AArch64 as well",
        "extras: needs packages of an extra; only `make test-extras` runs it",
        "targets: needs an emulator, wine or a browser; only `make test-targets` runs it",
    ):
        config.addinivalue_line("markers", marker)
    # Hypothesis draws numbers from the source of all that is imported: four seconds in a new
    # clone, and other examples behind any edit.
    with suppress(ImportError):
        providers = import_module("hypothesis.internal.conjecture.providers")
        providers._get_local_constants = lambda: providers._local_constants
    # Workers and the programs that tests start find the bytecode of those before them.
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="ostinato-tests-")
        config.add_cleanup(folder.cleanup)
        os.environ["XDG_CACHE_HOME"] = folder.name
        if config.pluginmanager.has_plugin("cacheprovider"):
            os.environ[node_cases.FOLDER] = str(config.cache.mkdir("onnx-node-cases"))
            objects = config.cache.mkdir("llvm-objects")
            kept_objects.trim(objects)
            os.environ[kept_objects.FOLDER] = str(objects)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import the files of the run, each worker beginning with others.

    Whoever is the first rewrites the assertions of a file, which takes as long as twenty tests, and
    the others find the bytecode. In the order in which all of them collect, each would rewrite all.
    """
    worker = getattr(session.config, "workerinput", {"workercount": 1})
    if worker["workercount"] == 1:
        return
    tests = Path(__file__).parent
    given = [Path(argument.partition("::")[0]).absolute() for argument in session.config.args]
    files = sorted(f for f in tests.rglob("test_*.py") if any(f.is_relative_to(g) for g in given))
    begin = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for file in (*files[begin:], *files[:begin]):
        # What is wrong with a file is said when it is collected.
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(file.relative_to(tests.parent).with_suffix("").parts))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--fast"):
        return
    seen: Counter[Path] = Counter()
    chosen, others = [], []
    for item in items:
        if item.get_closest_marker("slow") is not None:
            others.append(item)
            continue
        (others if seen[item.path] % FAST_STEP else chosen).append(item)
        seen[item.path] += 1
    items[:] = chosen
    config.hook.pytest_deselected(items=others)


def pytest_collection_finish() -> None:
    # Thousands of items live until the end: collections need not look at them every time.
    gc.collect()
    gc.freeze()
    # What compiling makes is hardly ever garbage. Collections at 50,000 take 2 to 5 % of the time,
    # without them a worker takes 130 MB more.
    gc.set_threshold(1_000_000, 20, 50)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test in a worker, which reports nothing of setups and teardowns that passed.

    Each report takes the worker and whoever collects them 0.15 ms, of which nothing is shown.
    """
    options = item.config.option
    if not hasattr(item.config, "workerinput") or options.durations or options.xmlpath:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_runtest_logfinish() -> None:
    """What outlived a collection stays: caches, and what modules hold. The next one need not look.

    Each would take as long as a hundred tests, and they were a twentieth of all time. Not inside
    of a test, which may wait for the end of something that was looked at.
    """
    collections = gc.get_stats()[2]["collections"]
    if collections > seen_collections[-1]:
        seen_collections[:] = [collections]
        gc.freeze()


def pytest_sessionfinish() -> None:
    """pytest looks through all objects of a worker once more, which takes seconds."""
    gc.freeze()


seen_collections = [0]

# Tests of one kernel for many inputs compile it again and again.
made_object = lru_cache(maxsize=1024)(kept_objects.kept(llvm.make_object))
made_plain_object = kept_objects.kept(llvm.make_plain_object)


def kernel_store(_: Options) -> KernelStore:
    return KernelStore(Cache(os.path.join(os.environ["XDG_CACHE_HOME"], "kernels")))


@cache
def is_among(path: Path, places: tuple[str, ...]) -> bool:
    """Whether a file of tests is one of some, or lies in one of some folders."""
    place = path.relative_to(Path(__file__).parent)
    return any(place.is_relative_to(other) for other in places)


@pytest.fixture(autouse=True, scope="module")
def quickly_compiled(request: pytest.FixtureRequest) -> Iterator[None]:
    """Models of the files that are not about code, apart from the others in the cache.

    Before all other fixtures of a file, so that their sessions are compiled like those of tests.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llvm, "make_object", made_object)
        patch.setattr(llvm, "make_plain_object", made_plain_object)
        # Tests run beside each other already.
        patch.setattr(ostinato.compiler, "processors", lambda: 1)
        if not is_among(request.path, ABOUT_CODE):
            unoptimized.patch(patch, is_among(request.path, ABOUT_GRAPHS))
        else:
            # Whoever wants no cache gets the kernels of the run all the same.
            patch.setattr(ostinato.compiler, "kernel_store", kernel_store)
        yield
