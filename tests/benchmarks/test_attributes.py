from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import ostinato
from benchmarks import attribute_cases, attribute_loops, attribute_scans, attributes
from benchmarks.attributes import Answer
from tests import witness

CELLS = attribute_cases.cells()
GRAPHS = [*attribute_scans.scans(), *attribute_loops.loops(), *attribute_loops.ifs()]
CASES = attributes.cases()
# Refused by onnxruntime.
NO_STEPS = "Scan: no steps"
# State that changes its shape from step to step.
NOT_YET = {"Loop: values that grow"}


def names(case: attribute_cases.Case) -> str:
    return case.name


def case_named(name: str) -> attribute_cases.Case:
    (case,) = (case for case in CASES if case.name == name)
    return case


@pytest.mark.parametrize("case", CASES, ids=names)
def test_models_are_valid_and_feeds_fit(case: attribute_cases.Case) -> None:
    onnx.checker.check_model(case.model, full_check=True)
    declared = {
        value.name: (
            onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type),
            len(value.type.tensor_type.shape.dim),
        )
        for value in case.model.graph.input
    }
    assert declared == {name: (a.dtype, a.ndim) for name, a in case.feeds.items()}
    assert len(case.expected) == len(case.model.graph.output)
    assert all(np.isfinite(array).all() for array in case.expected)


def test_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CELLS, ids=names)
def test_a_runtime_that_ignores_an_attribute_is_found_out(case: attribute_cases.Case) -> None:
    (node,) = (node for node in case.model.graph.node if node.name == "cell")
    values = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    given = {
        name: [v.decode() for v in value] if name == "activations" else value
        for name, value in values.items()
        if name not in ("hidden_size", "direction", "layout")
    }
    given["layout"] = values.get("layout", 0)
    given["direction"] = values.get("direction", b"forward").decode()
    arrays = dict(case.feeds)
    for tensor in case.model.graph.initializer:
        arrays[tensor.name] = onnx.numpy_helper.to_array(tensor)
    outputs = attribute_cases.OUTPUTS[case.group]

    def results(**attributes_given: object) -> list[np.ndarray]:
        found = attribute_cases.ORACLES[case.group](**arrays, **attributes_given)
        by_name = dict(zip(outputs, found, strict=True))
        return [by_name[output.name] for output in case.model.graph.output]

    # Casting what is fed to float16 or bfloat16 is the model's own doing.
    assert attributes.error(results(**given), case.expected) <= case.tolerance
    default = {"linear_before_reset": 0, "input_forget": 0, "direction": "forward", "layout": 0}
    default["activations"] = list(attribute_cases.DEFAULTS[case.group])
    if 0 in case.feeds["X"].shape:
        return
    for name, value in given.items():
        ignored = {key: other for key, other in given.items() if key != name}
        if value == default.get(name) or name == "layout" or value == "bidirectional":
            continue
        if name == "activations":
            ignored = {k: v for k, v in ignored.items() if not k.startswith("activation")}
        assert attributes.error(results(**ignored), case.expected) > 5 * case.tolerance, name


def test_results_without_a_feature_are_others() -> None:
    shown = ("direction reverse", "sequence_lens", "clip", "activation", "different activations")
    shown += ("input_forget 1", "peepholes", "linear_before_reset 0, reverse")
    for case in CELLS:
        assert case.ignored is not None
        # Tanh is the default; what else is not listed changes shapes, types or what is given.
        if case.feature.startswith(shown) and case.feature != "activation Tanh":
            assert attributes.error(case.ignored, case.expected) > 0.1, case.name
        else:
            assert attributes.error(case.ignored, case.expected) == 0, case.name


@pytest.mark.parametrize("case", GRAPHS, ids=names)
def test_onnxruntime_means_the_same_by_scan_loop_and_if(case: attribute_cases.Case) -> None:
    if case.name == NO_STEPS:
        with pytest.raises(witness.WitnessError, match="Scan"):
            witness.run(case.model.SerializeToString(), case.feeds)
        return
    outputs = witness.run(case.model.SerializeToString(), case.feeds)
    assert attributes.judge(case, outputs).kind == ("other reading" if case.other else "right")


@pytest.mark.parametrize("case", GRAPHS, ids=names)
def test_no_case_is_computed_wrongly(case: attribute_cases.Case) -> None:
    try:
        session = ostinato.InferenceSession(case.model, cache_dir=None)
        outputs = session.run(None, case.feeds)
    except ostinato.OstinatoError:
        assert case.name in NOT_YET
        return
    assert attributes.judge(case, outputs).kind in ("right", "other reading")


def test_error_is_relative_to_the_largest_element() -> None:
    big = np.array([100.0, 1.0])
    assert attributes.error([big + 1, np.ones(0)], [big, np.ones(0)]) == pytest.approx(0.01)
    assert attributes.error([np.ones(1)], [np.zeros(1)]) == 1
    assert attributes.error([big * np.nan], [big]) == float("inf")
    assert attributes.error([big[:1]], [big]) == float("inf")
    assert attributes.error([], [big]) == float("inf")


def test_judgement() -> None:
    case = case_named("LSTM: clip")
    assert case.other is not None
    assert attributes.judge(case, case.expected) == Answer("right")
    assert attributes.judge(case, case.expected, True) == Answer("native")
    assert attributes.judge(case, case.expected, False) == Answer("fallback")
    assert attributes.judge(case, case.other) == Answer("other reading", case.reading)
    assert attributes.judge(case, [array + 1 for array in case.expected]).kind == "wrong"
    assert attributes.judge(case, [array * np.nan for array in case.expected]).detail == "NaN"
    assert case.ignored is not None
    assert attributes.judge(case, case.ignored).kind == "ignored"
    assert "shapes" in attributes.judge(case, case.expected[:1]).detail


def test_a_runtime_runs_in_a_process_of_its_own() -> None:
    assert attributes.ask(case_named("RNN: direction forward"), "ostinato") == Answer("native")


def test_refusals_keep_their_message() -> None:
    case = case_named("RNN: direction forward")
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.graph.node[0].op_type = "Unheard"
    case = attribute_cases.Case("RNN", "unheard", model, case.feeds, case.expected)
    answer = attributes.ask(case, "ostinato")
    assert answer.kind == "refused"
    assert "Unheard" in answer.detail


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
@pytest.mark.parametrize(
    ("script", "kind"), [("echo broken; kill -ABRT $$", "crashed"), ("sleep 60 & wait", "hangs")]
)
def test_a_process_that_dies_or_hangs_is_an_answer(
    script: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    answer = attributes.ask(case_named("RNN: direction forward"), "tract", seconds=1)
    assert answer.kind == kind
    assert kind != "crashed" or answer.detail == "code -6 broken"


def test_the_table_groups_operators_by_their_answer() -> None:
    wanted = [case_named(f"{op}: clip") for op in attribute_cases.CELLS]
    wanted.append(case_named("LSTM: peepholes"))
    found = {(case.name, "tract"): Answer("right") for case in wanted}
    found["GRU: clip", "tract"] = Answer("wrong")
    found["LSTM: peepholes", "tract"] = Answer("crashed")
    lines = attributes.table(wanted, found, ["tract"]).splitlines()
    assert "| clip | RNN LSTM right, GRU **wrong** |" in lines
    assert "| peepholes (LSTM) | **crashed** |" in lines
    assert any(line.endswith("| 2 | 0 | 0 | 1 | 1 | 0 | 0 | 0 |") for line in lines)


def test_the_section_is_replaced_between_its_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{attributes.BEGIN}\nold\n{attributes.END}\nafter\n")
    attributes.replace_section(page, "new")
    assert page.read_text() == f"before\n{attributes.BEGIN}\nnew\n{attributes.END}\nafter\n"
    page.write_text("no markers")
    with pytest.raises(SystemExit, match="attributes: begin"):
        attributes.replace_section(page, "new")


def test_the_page_has_a_row_for_every_feature() -> None:
    page = (attributes.ROOT / "docs" / "recurrence.md").read_text()
    section = page.partition(attributes.BEGIN)[2].partition(attributes.END)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    rows = {line.split("|")[1].split(" (")[0].strip() for line in lines}
    assert {case.feature for case in CASES} <= rows
