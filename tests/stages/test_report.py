"""The report is one record, whole before the first run, and says what is interpreted."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.errors import UnsupportedError
from ostinato.ops import LOWERINGS
from ostinato.stages import notice
from ostinato.stages.fallback import FallbackNode
from tests.cases.case import Case
from tests.cases.table import CASES
from tests.golden import parse

DOCUMENT = Path(__file__).parents[2] / "docs" / "report.md"
NATIVE = parse("g (float[N] x) => (float[N] y) { y = Relu(x) }")
STRINGS = parse(
    "g (string[N] s, float[N] x) => (string[N] u, float[N] y)"
    "{ t = StringConcat(s, s)  u = StringConcat(t, s)  y = Relu(x) }",
    opset=20,
)
EMPTY = parse("g (string[N] s) => (string[N] t) { t = StringConcat(s, s) }", opset=20)
GROWS = parse("""
    g (int64 n, float[1] x) => (float[M] y, int64 rows) <
        bool yes = {1}, int64[1] zero = {0}, int64 last = {-1}, int64[1] all = {-1}
    > {
        none = SequenceEmpty <dtype = 1> ()
        pieces = Loop (n, yes, none) <body = b (int64 i, bool c, seq(float[L, L]) p) => (
            bool k, seq(float[L, L]) q) {
            k = Identity(c)
            count = Unsqueeze(i, zero)
            sizes = Concat <axis = 0> (count, count)
            square = Expand(x, sizes)
            q = SequenceInsert(p, square)
        }>
        largest = SequenceAt(pieces, last)
        y = Reshape(largest, all)
        rows = SequenceLength(pieces)
    }""")
INSIDE = parse(
    """
    g (string[N] s, int64 n) => (string[N] t) <bool yes = {1}> {
        t = Loop (n, yes, s) <body = b (int64 i, bool c, string[N] p) => (bool k, string[N] q) {
            k = Identity(c)
            q = StringConcat(p, s)
        }>
    }""",
    opset=20,
)
# A rank that depends on a size: made for M = 1.
ASSUMES = parse("""
    g (float[N, M] x) => (float[K] y)
    <int64 one = {1}, int64[1] axis = {1}, int64 position = {1}, int64[1] flat = {-1}> {
        shape = Shape(x)
        size = Gather(shape, position)
        condition = Equal(size, one)
        narrow = If (condition) <
            then_branch = then () => (float[] a) { a = Squeeze(x, axis) },
            else_branch = otherwise () => (float[] b) { b = Identity(x) }
        >
        rectified = Relu(narrow)
        y = Reshape(rectified, flat)
    }""")
MODELS = {"native": NATIVE, "strings": STRINGS, "empty": EMPTY, "grows": GROWS, "assumes": ASSUMES}


def session(model: onnx.ModelProto, **options: object) -> ostinato.InferenceSession:
    return ostinato.InferenceSession(model, cache_dir=None, **options)


@pytest.mark.parametrize("name", MODELS)
def test_the_keys_are_the_same_for_every_model_and_documented(name: str) -> None:
    report = session(MODELS[name]).report()
    assert isinstance(report, ostinato.Report)
    rows = re.findall(r"^\| `(\w+)` \|", DOCUMENT.read_text().partition("## Entries")[0], re.M)
    assert list(report) == list(report.keys()) == rows
    assert json.loads(json.dumps(dict(report))) == report == dict(report.items())
    assert report["kernels"] is report.kernels
    assert len(str(report).splitlines()) >= 6
    with pytest.raises(KeyError, match="the keys are native, fallback"):
        report["specialized"]


def test_entries_are_documented() -> None:
    (entry, *_) = session(EMPTY).report().fallback
    rows = re.findall(r"^\| `(\w+)` \|", DOCUMENT.read_text().partition("## Entries")[2], re.M)
    assert list(entry) == rows


def test_what_runs_on_a_reference_kernel_is_listed_before_the_first_run() -> None:
    report = session(STRINGS).report()
    assert not report.native
    assert [(e["node"], e["op"], e["status"]) for e in report.fallback] == [
        ("t", "StringConcat", "reference kernel"),
        ("u", "StringConcat", "reference kernel"),
    ]
    assert all(entry["reason"] for entry in report.fallback)
    assert report.interpreted == report.fallback


def test_a_loop_whose_state_has_no_fixed_form_is_listed_before_the_first_run() -> None:
    compiled = session(GROWS)
    before = compiled.report()
    entry = before.fallback[0]
    assert (entry["node"], entry["op"], entry["inputs"]) == ("pieces", "Loop", ["n", "none"])
    assert entry["status"] == "compiled when called"
    assert "only known at run time" in entry["reason"]
    assert not before.native
    assert before.interpreted == []
    x = np.ones(1, "f")
    assert len(compiled.run(None, {"n": np.array(3), "x": x})[0]) == 4
    assert compiled.report().interpreted == []
    assert len(compiled.run(None, {"n": np.array(80), "x": x})[0]) == 79 * 79
    (entry,) = compiled.report().interpreted
    assert "only known at run time" in entry["taken_over"][0]


def test_a_node_with_bodies_names_the_inner_node_that_is_the_reason() -> None:
    (entry,) = session(INSIDE).report().fallback
    assert (entry["node"], entry["op"]) == ("t", "Loop")
    assert "'s'" in entry["reason"] or "StringConcat" in entry["reason"]


NOT_ALL_NATIVE = [case for case in CASES if not case.native]


@pytest.mark.parametrize("case", NOT_ALL_NATIVE, ids=lambda case: case.name)
def test_nothing_is_interpreted_that_was_not_listed_at_load(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreted: set[str] = set()
    original = FallbackNode.run

    def recorded(node: FallbackNode, values: Mapping[str, Any]) -> dict[str, Any]:
        interpreted.add(node.stage.name)
        return original(node, values)

    monkeypatch.setattr(FallbackNode, "run", recorded)
    compiled = session(case.model)
    listed = {entry["node"] for entry in compiled.report().fallback}
    for sizes in case.sizes:
        compiled.run(None, case.feeds(sizes))
    assert interpreted <= listed
    assert {entry["node"] for entry in compiled.report().interpreted} == interpreted


def test_what_only_other_sizes_reach_says_so() -> None:
    compiled = session(ASSUMES)
    before = compiled.report()
    assert before.native
    assert before.fallback and before.assumptions
    assert all(entry["unless"] == before.assumptions for entry in before.fallback)
    assert {"Relu", "Reshape"} <= {entry["op"] for entry in before.fallback}
    for shape in ((2, 1), (2, 3)):
        x = np.full(shape, -1, "f")
        assert compiled.run(None, {"x": x})[0].tolist() == [0] * x.size
    after = compiled.report()
    assert [e["node"] for e in after.fallback] == [e["node"] for e in before.fallback]
    strict = session(ASSUMES, fallback=False)
    for shape in ((2, 1), (2, 3)):
        strict.run(None, {"x": np.ones(shape, "f")})


def test_other_sizes_that_are_interpreted_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule of Abs is gone when the program for other sizes is compiled."""
    text = onnx.printer.to_text(ASSUMES).replace("Identity (x)", "Abs (x)")
    compiled = session(onnx.parser.parse_model(text))
    monkeypatch.delitem(LOWERINGS, "Abs")
    x = np.full((2, 3), -1, "f")
    compiled.run(None, {"x": x[:, :1]})
    assert compiled.report().interpreted == []
    assert compiled.run(None, {"x": x})[0].tolist() == [1] * 6
    assert compiled.report().native
    (entry,) = compiled.report().interpreted
    assert (entry["op"], entry["status"]) == ("Abs", "reference kernel")
    assert entry["unless"] == compiled.report().assumptions
    assert entry["taken_over"] == ["sizes that are not assumed"]


@pytest.mark.parametrize("name", ["strings", "empty", "grows"])
def test_without_fallback_all_nodes_of_the_list_are_refused_at_load(name: str) -> None:
    entries = session(MODELS[name]).report().fallback
    with pytest.raises(UnsupportedError) as refused:
        session(MODELS[name], fallback=False)
    for entry in entries:
        assert f"node {entry['node']!r} ({entry['op']}): {entry['reason']}" in str(refused.value)


def test_the_cache_keeps_the_list(tmp_path: Path) -> None:
    for model in (STRINGS, ASSUMES):
        fresh = ostinato.InferenceSession(model, cache_dir=tmp_path).report()
        cached = ostinato.InferenceSession(model, cache_dir=tmp_path).report()
        assert cached.from_cache and not fresh.from_cache
        assert cached.fallback == fresh.fallback


def test_a_session_shows_its_values_and_whether_it_is_native() -> None:
    assert repr(session(NATIVE)) == (
        "<ostinato.InferenceSession (x: float32[N]) -> (y: float32[N]); 1 kernel, native>"
    )
    assert repr(session(EMPTY)).endswith("; 0 kernels, 1 node not native>")
    assert repr(session(ASSUMES)).endswith("native for the assumed sizes>")
    assert repr(session(NATIVE).report()) == "<ostinato.Report: 1 kernel, native>"


def test_an_interpreted_model_is_logged_once_and_warned_of_once_in_a_process(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notice, "_warned", False)
    with pytest.warns(RuntimeWarning, match="not all native") as warned:
        for model in (NATIVE, STRINGS, STRINGS, EMPTY):
            session(model)
    assert len(warned) == 1
    assert [record.name for record in caplog.records] == ["ostinato"] * 3
    assert caplog.records[0].levelno == logging.WARNING
    assert "node 't' (StringConcat), reference kernel" in caplog.text
    caplog.clear()
    grows = session(GROWS)
    assert not caplog.records
    for count in (80, 81):
        grows.run(None, {"n": np.array(count), "x": np.ones(1, "f")})
    (record,) = caplog.records
    assert "node 'pieces' (Loop)" in record.getMessage()


def test_the_notice_names_the_file(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    onnx.save(EMPTY, tmp_path / "letters.onnx")
    ostinato.InferenceSession(tmp_path / "letters.onnx", cache_dir=None)
    assert "letters.onnx: 1 node runs on reference kernels" in caplog.text
