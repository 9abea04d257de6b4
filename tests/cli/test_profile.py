"""`ostinato profile`: figures that add up, a page that needs nothing else, a trace."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ostinato.native.threads import processors
from ostinato.profiling.measuring import _Measured
from tests.cli.conftest import Invoke
from tests.golden import parse


def test_figures_add_up(invoke: Invoke, gru: Path) -> None:
    result = invoke("profile", gru, "--dim", "T=50", "--seconds", "0.05", "--json")
    assert result.exit_code == 0, result.stderr
    record = json.loads(result.stdout)
    kernels = record["kernels"]
    assert record["inputs"] == {"x": [50, 1, 4]}
    total = sum(kernel["seconds"] for kernel in kernels)
    assert total == pytest.approx(record["kernel_seconds"])
    # What is left is the call itself, some hundred nanoseconds.
    assert 0 < total <= record["call_seconds"] * 1.001
    assert total + record["outside_seconds"] == pytest.approx(record["call_seconds"], rel=1e-3)
    assert record["overhead"] == "from Python into compiled code and back"
    assert record["waiting_seconds"] == [0.0]
    stepwise = [kernel for kernel in kernels if kernel["loop"] is not None]
    assert stepwise and all(kernel["runs"] == 50 for kernel in stepwise)
    assert all(
        kernel["nodes"] and kernel["title"].startswith(kernel["nodes"][-1]) for kernel in stepwise
    )
    # Run-time sizes are those of the call: 50 rows of 4 by 12 products.
    assert max(kernel["flops"] for kernel in kernels) >= 2 * 50 * 4 * 12


def test_turns_of_other_programs_are_not_counted(
    invoke: Invoke, gru: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = _Measured._bound

    def interrupted(measured: _Measured) -> Callable[[], object]:
        call, resumed = bound(measured), time.monotonic()

        def run() -> None:
            nonlocal resumed
            call()
            if time.monotonic() - resumed > 4e-3:
                time.sleep(20e-3)
                resumed = time.monotonic()

        return run

    monkeypatch.setattr(_Measured, "_bound", interrupted)
    arguments = ("--dim", "T=50", "--seconds", "0.2", "--json")
    record = json.loads(invoke("profile", gru, *arguments).stdout)
    assert record["call_seconds"] < 2 * record["kernel_seconds"]


def test_sizes_that_kernels_compute_are_those_of_the_call(invoke: Invoke, tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    text = """g (float[9] x, float[64] w) => (float[64] y) <float low = {-9}, int64[1] k = {0}> {
        p = Greater(x, low)  i = NonZero(p)  r = Transpose(i)  f = Cast<to = 1>(r)
        m = Mul(f, w)  y = ReduceSum<keepdims = 0>(m, k)
    }"""
    model.write_bytes(parse(text).SerializeToString())
    record = json.loads(invoke("profile", model, "--seconds", "0.02", "--json").stdout)
    assert max(kernel["flops"] for kernel in record["kernels"]) >= 9 * 64


def test_page_and_trace(invoke: Invoke, gru: Path, tmp_path: Path) -> None:
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    result = invoke(
        "profile", gru, "--dim", "T=9", "--seconds", "0.02", "--html", page, "--trace", trace
    )
    assert result.exit_code == 0, result.stderr
    assert "of roofline" in result.stdout and "outside of kernels" in result.stdout
    text = page.read_text()
    assert len(text) < 1_000_000
    assert not re.search(r"""(src|href)=|@import|url\(|https?://(?!www\.w3\.org/2000/svg)""", text)
    data = json.loads(text.split("const data = ")[1].split(";\n")[0])
    assert data["pieces"] and data["memory"] and data["edges"]
    # Bytes of values that pass through memory are those of this call.
    assert all(isinstance(size, int) for _, _, _, size, _ in data["refusals"])
    events = json.loads(trace.read_text())["traceEvents"]
    runs = [event for event in events if event["ph"] == "X"]
    assert sum(kernel["runs"] for kernel in data["kernels"]) == len(runs)
    ends = [event["ts"] + event["dur"] for event in runs]
    assert all(b["ts"] == pytest.approx(a, abs=1e-6) for a, b in zip(ends, runs[1:], strict=False))


def test_names_cannot_end_the_script(invoke: Invoke, gru: Path, tmp_path: Path) -> None:
    evil, page = tmp_path / "<script>x.onnx", tmp_path / "page.html"
    evil.write_bytes(gru.read_bytes())
    result = invoke("profile", evil, "--dim", "T=2", "--seconds", "0.02", "--html", page)
    assert result.exit_code == 0, result.stderr
    assert page.read_text().count("<script>") == 1


def test_a_folder_that_is_not_there_is_said_before_measuring(invoke: Invoke, gru: Path) -> None:
    result = invoke("profile", gru, "--html", "/nowhere/page.html")
    assert result.exit_code == 2
    assert "/nowhere" in result.stderr


def test_threads_are_shown_apart(invoke: Invoke, tmp_path: Path) -> None:
    model, trace = tmp_path / "model.onnx", tmp_path / "trace.json"
    text = """g (float[256, 512] x, float[512, 512] w) => (float[256, 512] y)
        { a = MatMul(x, w) y = Tanh(a) }"""
    model.write_bytes(parse(text).SerializeToString())
    command = ["profile", model, "--threads", "2", "--seconds", "0.05", "--trace", trace]
    result = invoke(*command)
    assert result.exit_code == 0, result.stderr
    if processors() > 1:
        assert "thread 1" in result.stdout and "imbalance" in result.stdout
        assert "waiting for threads" in result.stdout
    record = json.loads(invoke(*command, "--json").stdout)
    kernel = max(record["kernels"], key=lambda kernel: kernel["flops"])
    assert all(each["seconds"] == each["threads"][0] for each in record["kernels"])
    assert len(kernel["threads"]) == len(record["waiting_seconds"]) == min(2, processors())
    parts = (record["kernel_seconds"], record["waiting_seconds"][0], record["outside_seconds"])
    assert sum(parts) == pytest.approx(record["call_seconds"], rel=1e-3)
    assert kernel["imbalance"] >= 1 and 0 <= record["shared"] <= 1
    # Only where other threads took part was anything measured of them.
    assert (kernel["threads"][-1] > 0) >= (record["shared"] == 1)
    events = json.loads(trace.read_text())["traceEvents"]
    rows = [event["args"]["name"] for event in events if event.get("name") == "thread_name"]
    assert rows == ["one call", "one call, thread 1"][: processors()]


def test_runs_of_all_threads_count_where_steps_are_dealt_out(
    invoke: Invoke, tmp_path: Path
) -> None:
    model = tmp_path / "model.onnx"
    text = "g (float[256, 4096] x) => (float[256, 4096] y) { y = Softmax(x) }"
    model.write_bytes(parse(text).SerializeToString())
    runs = []
    for threads in (1, 2):
        command = ["profile", model, "--threads", threads, "--seconds", "0.05", "--json"]
        record = json.loads(invoke(*command).stdout)
        runs.append({kernel["name"]: kernel["runs"] for kernel in record["kernels"]})
    assert runs[0] == runs[1]
    assert min(runs[0].values()) > 1
