"""Sessions of several threads: the bits of one, and workers that come and go."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.codegen import threads
from ostinato.errors import OptionError, RunError
from ostinato.native import threads as workers
from ostinato.schedule import share
from tests.cases.case import Case
from tests.cases.table import CASES
from tests.digests import RECORDED, digest
from tests.native.recurrence import bits, feeds, gru, session, teams

FAMILIES = (
    "GRU LSTM RNN MatMul Gemm Einsum Conv ConvTranspose MaxPool AveragePool Softmax CumSum Scan "
    "scan counted trip nested while never Attention LayerNormalization STFT ScatterElements TopK"
).split()
SELECTED = [case for case in CASES if case.name.split("-")[0] in FAMILIES][::8]
IN_ORDER = [case for case in CASES if case.name.split("-")[0] in ("GRU", "LSTM", "scan", "nested")]
# Far more than any step or call gains, in picoseconds.
NEVER = 1 << 60


@pytest.fixture(autouse=True)
def processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of them, whatever this machine has."""
    monkeypatch.setattr(workers, "processors", lambda: 3)


@pytest.fixture
def steadfast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call that may be shared is, busy machine or not."""
    monkeypatch.setattr(threads, "MOST_ALONE", 0)
    monkeypatch.setattr(threads, "LOSSES", 0)
    monkeypatch.setattr(threads, "SIGN_SPINS", 1 << 40)
    monkeypatch.setattr(threads, "WAKE_SPINS", 1 << 40)


@pytest.fixture
def eager(steadfast: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel is divided that can be, and every call is shared."""
    monkeypatch.setattr(share, "LEAST", 0)
    monkeypatch.setattr(share, "WAIT", 0)
    monkeypatch.setattr(share, "WAKE", -NEVER)


def check_bits(case: Case, threads: int) -> None:
    """All sizes of a case on so many threads, several times: the bits of one thread.

    `test_modes` compares those of one thread with the digest. Only where the digest is another one,
    or none is recorded, are they computed here as well.
    """
    several = session(case.model, threads=threads)
    feeds = [case.feeds(sizes) for sizes in case.sizes]
    found = [[several.run(None, each) for _ in range(3)] for each in feeds]
    if {digest(runs) for runs in zip(*found, strict=True)} == {RECORDED.get(case.name)}:
        return
    single = session(case.model)
    for sizes, each, runs in zip(case.sizes, feeds, found, strict=True):
        expected = bits(single.run(None, each))
        for run in runs:
            assert bits(run) == expected, sizes


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("case", "threads"),
    [(case, 2 + number % 2) for number, case in enumerate(SELECTED)],
    ids=[case.name for case in SELECTED],
)
def test_any_number_of_threads_gives_the_same_bits(case: Case, threads: int) -> None:
    check_bits(case, threads)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("case", IN_ORDER[::6], ids=[case.name for case in IN_ORDER[::6]])
def test_steps_left_to_one_thread_give_the_same_bits(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share, "WAIT", NEVER >> 20)
    monkeypatch.setattr(share, "WAKE", -NEVER * NEVER)
    check_bits(case, 3)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("heads", "positions", "given"), [(5, 211, 211), (1, 600, 600), (5, 301, "N")]
)
def test_heads_and_rows_that_are_dealt_out_give_the_same_bits(
    heads: int, positions: int, given: int | str
) -> None:
    """Scores that exceed the caches, of several heads and of one."""
    shape = f"float[{heads}, {given}, 16]"
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]>
        g ({shape} q, {shape} k, {shape} v) => ({shape} y, {shape} z) {{
            t = Transpose<perm = [0, 2, 1]>(k)
            s = MatMul(q, t)
            p = Softmax(s)
            y = MatMul(p, v)
            ones = Constant<value = float[16] {{{", ".join(["1"] * 16)}}}>()
            z = LayerNormalization(y, ones)
        }}"""
    )
    random = np.random.default_rng(4)
    feeds = {n: random.standard_normal((heads, positions, 16)).astype("f") for n in "qkv"}
    expected = bits(session(model).run(None, feeds))
    for count in (2, 3):
        several = session(model, threads=count)
        for _ in range(5):
            assert bits(several.run(None, feeds)) == expected
        assert all(team.jobs == 5 for team in teams(several)) and teams(several)


@pytest.mark.usefixtures("steadfast")
def test_large_recurrences_are_shared_and_small_ones_are_not() -> None:
    for hidden in (64, 128):
        assert not teams(session(gru(hidden, 100), threads=2))
    large = session(gru(256), threads=2)
    (team,) = teams(large)
    large.run(None, feeds(256, 1))
    assert team.jobs == 0
    large.run(None, feeds(256, 100))
    assert team.jobs == 1


@pytest.mark.usefixtures("eager")
def test_many_calls_of_many_python_threads() -> None:
    """`run` shares an arena, bound calls run at the same time; only one of them has the team."""
    one, several = session(gru(64)), session(gru(64), threads=3)
    given = [feeds(64, 1 + n % 5, n) for n in range(12)]
    expected = [bits(one.run(None, one_feed)) for one_feed in given]
    wrong: list[int] = []

    def work(first: int) -> None:
        bound = several.bind(given[first])
        for n in range(150):
            which = (first + n) % len(given)
            if bits(several.run(None, given[which])) != expected[which]:
                wrong.append(which)
            bound()
            if bits([*bound.outputs.values()]) != expected[first]:
                wrong.append(first)

    callers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong
    assert teams(several)[0].jobs > 0


@pytest.mark.host
@pytest.mark.usefixtures("eager")
def test_calls_far_apart_wake_sleeping_workers() -> None:
    one, several = session(gru(64)), session(gru(64), threads=2)
    given = feeds(64, 3)
    expected = bits(one.run(None, given))
    for n in range(20):
        time.sleep(0.001 * (n % 4))
        assert bits(several.run(None, given)) == expected
    assert teams(several)[0].jobs == 20


@pytest.mark.usefixtures("eager")
def test_small_calls_wait_for_nobody_who_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share, "PATIENT", NEVER * 2)
    several, given = session(gru(64), threads=2), feeds(64, 3)
    bound, (team,) = several.bind(given), teams(several)
    for _ in range(5):
        time.sleep(0.05)
        bound()
    assert team.jobs == 0
    end = time.monotonic() + 60
    while not team.jobs and time.monotonic() < end:
        bound()
    assert team.jobs > 0


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("spins", [0, 1, 20])
def test_who_comes_late_is_left_out(spins: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "SIGN_SPINS", spins)
    monkeypatch.setattr(threads, "WAKE_SPINS", spins)
    several, given = session(gru(64), threads=3), feeds(64, 3)
    expected = bits(session(gru(64)).run(None, given))
    for n in range(300):
        assert bits(several.run(None, given)) == expected
        if n % 10 == 0:
            time.sleep(0.001)


def _system_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _threads_that_stay() -> int:
    """How many threads there are without those of sessions that nothing refers to."""
    gc.collect()
    return _system_threads()


needs_proc = pytest.mark.skipif(
    not os.path.isdir("/proc/self/task"), reason="the system does not list a process's threads"
)


@needs_proc
@pytest.mark.usefixtures("eager")
def test_workers_sleep_between_calls() -> None:
    several = session(gru(64), threads=3)
    several.run(None, feeds(64, 3))
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.03


@needs_proc
@pytest.mark.usefixtures("eager")
def test_workers_end_with_their_session(tmp_path: Path) -> None:
    model, given = gru(64, 3).SerializeToString(), feeds(64, 3)
    before = _threads_that_stay()
    for n in range(16):
        several = ostinato.InferenceSession(model, threads=3, cache_dir=tmp_path)
        assert _system_threads() == before + 2
        if n % 2:
            several.run(None, given)
        del several
        gc.collect() if n % 8 == 0 else None
    gc.collect()
    assert _system_threads() == before


@needs_proc
@pytest.mark.usefixtures("eager")
def test_bound_calls_keep_the_workers_of_a_dropped_session() -> None:
    before = _threads_that_stay()
    several = session(gru(64), threads=2)
    given = feeds(64, 5)
    expected = bits(several.run(None, given))
    bound = several.bind(given)
    del several
    gc.collect()
    bound()
    assert bits([*bound.outputs.values()]) == expected
    assert _system_threads() == before + 1
    del bound
    gc.collect()
    assert _system_threads() == before


@pytest.mark.host
@pytest.mark.usefixtures("eager")
def test_a_failing_check_stops_all_threads() -> None:
    source = """<ir_version: 10, opset_import: ["": 21]>
    g (float[T, 64] x, float[64, 64] w, int64[T, 1] i) => (float[T, 64] y) {
        a = MatMul(x, w)
        b = GatherElements<axis=1>(a, i)
        y = Mul(b, a)
    }"""
    several = session(onnx.parser.parse_model(source), threads=3)
    random = np.random.default_rng(0)
    good = {
        "x": random.standard_normal((40, 64)).astype("f"),
        "w": random.standard_normal((64, 64)).astype("f"),
        "i": np.zeros((40, 1), np.int64),
    }
    bad = good | {"i": np.full((40, 1), 64)}
    expected = bits(several.run(None, good))
    for _ in range(20):
        with pytest.raises(RunError, match="index"):
            several.run(None, bad)
        assert bits(several.run(None, good)) == expected
    assert teams(several)[0].jobs > 20


@pytest.mark.host
@pytest.mark.usefixtures("eager")
def test_workers_have_the_caller_s_floating_point_mode() -> None:
    source = """<ir_version: 10, opset_import: ["": 21]>
    g (float[4096] x) => (float[4096] y) { y = Mul(x, x) }"""
    model = onnx.parser.parse_model(source)
    tiny = {"x": np.full(4096, 1e-20, "f")}
    kept = session(model, threads=3)
    flushed = session(model, threads=3, flush_denormals=True)
    for _ in range(3):
        assert np.all(kept.run(None, tiny)[0] != 0)
        assert np.all(flushed.run(None, tiny)[0] == 0)
    assert teams(kept)[0].jobs == teams(flushed)[0].jobs == 3


_PROGRAM = """
import os, sys, threading
import numpy as np
import ostinato
from ostinato.codegen import threads
from ostinato.schedule import share
share.LEAST = share.WAIT = threads.MOST_ALONE = threads.LOSSES = 0
threads.SIGN_SPINS = threads.WAKE_SPINS = 1 << 40
share.WAKE = -1 << 60
from ostinato.native import threads as workers
workers.processors = lambda: 3
from tests.native.recurrence import bits, feeds, gru, session, teams
several, given = session(gru(64), threads=3), feeds(64, 20)
expected = bits(several.run(None, given))
"""
_FORK = """
child = os.fork()
if child == 0:
    same = bits(several.run(None, given)) == expected
    new = session(gru(64), threads=2)
    same = same and bits(new.run(None, given)) == expected and teams(new)[0].jobs == 1
    bound = several.bind(given)
    del several
    bound()
    sys.exit(0 if same and bits([*bound.outputs.values()]) == expected else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert bits(several.run(None, given)) == expected and teams(several)[0].jobs == 2
"""
_EXIT_BUSY = """
def work():
    call = several.bind(given)
    while True:
        call()
threading.Thread(target=work, daemon=True).start()
several.run(None, given)
"""


@pytest.mark.parametrize(
    "program",
    [
        "",
        "del several",
        "keep = [several.bind(given)]; keep.append(keep); sys.settrace(None)",
        _EXIT_BUSY,
        pytest.param(
            _FORK, marks=pytest.mark.skipif(not hasattr(os, "fork"), reason="cannot fork")
        ),
    ],
    ids=["session kept", "session dropped", "bound call kept", "daemon calls", "fork"],
)
def test_programs_end(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM + program], capture_output=True, timeout=120, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("wrong", [0, -1, True, 1.0, "2", 257, None])
def test_other_numbers_of_threads_are_refused(wrong: Any) -> None:
    with pytest.raises(OptionError, match=r"threads=.*expected 1 to 256"):
        ostinato.Options(threads=wrong)


@pytest.mark.host
@pytest.mark.usefixtures("eager")
def test_where_there_are_no_threads_calls_run_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers.Team, "_start", lambda self, count: [])
    one, several = session(gru(64)), session(gru(64), threads=3)
    given = feeds(64, 5)
    assert bits(several.run(None, given)) == bits(one.run(None, given))
    assert (teams(several)[0].threads, teams(several)[0].jobs) == (1, 0)


def test_no_more_threads_than_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "processors", lambda: 1)
    assert teams(session(gru(256, 100), threads=4))[0].threads == 1
    monkeypatch.setattr(workers, "processors", lambda: 2)
    assert teams(session(gru(256, 100), threads=4))[0].threads == 2
