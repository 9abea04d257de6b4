"""The expansion of RNN, GRU and LSTM against the oracle: values, shapes, and what is written."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings

from ostinato.errors import UnsupportedError
from ostinato.passes.normalise.recurrent_to_scan import recurrent_to_scan
from tests.oracle import evaluator
from tests.oracle import recurrent as oracle
from tests.passes.recurrent_cases import INPUTS, Case, cases, op_types

ALL = ("Y", "Y_h", "Y_c")
STATES = frozenset({"B", "initial_h"})
EVERYTHING = frozenset({"B", "initial_h", "initial_c", "P"})
NO_CONSTANT: frozenset[str] = frozenset()

TABLE = {
    "rnn": Case("RNN"),
    "gru": Case("GRU"),
    "lstm": Case("LSTM", outputs=ALL),
    "no_bias": Case("GRU", optional=NO_CONSTANT),
    "reset_after": Case("GRU", linear_before_reset=1),
    "reset_after_any_number": Case("GRU", linear_before_reset=-3),
    "reset_after_no_bias": Case("GRU", linear_before_reset=1, optional=NO_CONSTANT),
    "reverse": Case("GRU", direction="reverse", optional=STATES),
    "bidirectional": Case("LSTM", direction="bidirectional", optional=EVERYTHING, outputs=ALL),
    "batch_first": Case("LSTM", direction="bidirectional", layout=1, optional=EVERYTHING),
    "ragged": Case("GRU", N=3, lengths=(4, 1, 2), optional=STATES),
    "ragged_reverse": Case("GRU", direction="reverse", N=3, lengths=(4, 1, 2), optional=STATES),
    "ragged_batch_first": Case("LSTM", direction="bidirectional", layout=1, lengths=(1, 3)),
    "ragged_constant": Case("RNN", lengths=(1, 3), constant=frozenset(INPUTS[1:]), static=True),
    "length_zero": Case("LSTM", N=3, lengths=(0, 4, 0), optional=EVERYTHING, outputs=ALL),
    "length_zero_reverse": Case("GRU", direction="reverse", lengths=(0, 2), optional=STATES),
    "peepholes": Case("LSTM", optional=EVERYTHING, outputs=ALL),
    "coupled": Case("LSTM", input_forget=1, optional=EVERYTHING, outputs=ALL),
    "coupled_dynamic": Case("LSTM", input_forget=1, optional=EVERYTHING, constant=NO_CONSTANT),
    "clip": Case("GRU", clip=0.3),
    "clip_cell": Case("LSTM", clip=0.2, optional=EVERYTHING, outputs=ALL),
    "dynamic": Case("LSTM", optional=EVERYTHING, constant=NO_CONSTANT, direction="bidirectional"),
    "dynamic_reset_after": Case("GRU", linear_before_reset=1, constant=NO_CONSTANT),
    "dynamic_reset_before": Case("GRU", constant=NO_CONSTANT, direction="bidirectional"),
    "one_step": Case("GRU", S=1, static=True),
    "no_step": Case("LSTM", S=0, optional=EVERYTHING, outputs=ALL),
    "no_step_batch_first": Case("GRU", S=0, layout=1, direction="bidirectional"),
    "no_row": Case("LSTM", N=0, outputs=ALL),
    "no_row_ragged": Case("GRU", N=0, lengths=(), direction="reverse"),
    "only_sequence": Case("LSTM", outputs=("Y",)),
    "only_state": Case("LSTM", outputs=("Y_h",)),
    "only_cell": Case("LSTM", outputs=("Y_c",)),
    **{f"opset_{v}": Case("LSTM", opset=v, direction="bidirectional", clip=0.4, lengths=(2, 4))
       for v in (1, 7, 9, 10, 11, 12, 13, 14, 18, 22, 24)},
    "version_1_sequence": Case("RNN", opset=1, output_sequence=1),
    "version_3": Case("GRU", opset=3, linear_before_reset=1, output_sequence=0),
}  # fmt: skip


def check(case: Case) -> None:
    """The expanded model gives what the oracle gives, up to rounding in float64."""
    results = evaluator.run(case.expanded, case.feeds)
    for name, got, want in zip(case.outputs, results, case.expected, strict=True):
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12, err_msg=name, strict=True)


@pytest.mark.parametrize("name", TABLE)
def test_table(name: str) -> None:
    check(TABLE[name])


@given(cases())
@settings(max_examples=200, deadline=None, derandomize=True)
def test_any_combination(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_element_types(op: str, dtype: type) -> None:
    case = Case(op, opset=22, dtype=dtype, lengths=(2, 4), direction="bidirectional", clip=2.0)
    results = evaluator.run(case.expanded, case.feeds)
    for got, want in zip(results, case.expected, strict=True):
        assert got.dtype == dtype
        # Four steps of values below 1, with about a rounding error each.
        bound = 4 * float(ml_dtypes.finfo(dtype).eps)
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=0, atol=bound)


def test_nan_within_the_length_is_kept() -> None:
    case = Case("GRU", lengths=(2, 4))
    feeds = {name: array.copy() for name, array in case.feeds.items()}
    feeds["X"][1, 0] = np.nan
    sequence, state = evaluator.run(case.expanded, feeds)
    assert np.isnan(sequence[1, 0, 0]).all() and np.isnan(state[0, 0]).all()
    assert not np.isnan(sequence[2:, 0, 0]).any() and not np.isnan(state[0, 1]).any()


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (Case("RNN", outputs=("Y_h",)), "MatMul Add MatMul Add Tanh"),
        (Case("RNN"), "MatMul Add MatMul Add Tanh Identity"),
        (
            Case("GRU", linear_before_reset=1, outputs=("Y_h",)),
            "MatMul Add Split MatMul Split Add Sigmoid Add Sigmoid Add Mul Add Tanh "
            "Sub Mul Mul Add",
        ),
        (
            Case("GRU", outputs=("Y_h",)),
            "MatMul Add Split MatMul Split Add Sigmoid Add Sigmoid Mul MatMul Add Tanh "
            "Sub Mul Mul Add",
        ),
        (
            Case("LSTM", outputs=("Y_h",)),
            "MatMul Add MatMul Add Split Sigmoid Sigmoid Tanh Mul Mul Add Sigmoid Tanh Mul",
        ),
        (
            Case("LSTM", outputs=("Y_h",), input_forget=1, optional=NO_CONSTANT),
            "MatMul MatMul Add Split Sigmoid Sub Tanh Mul Mul Add Sigmoid Tanh Mul",
        ),
    ],
)
def test_a_step_has_no_other_nodes(case: Case, expected: str) -> None:
    case = dataclasses.replace(case, static=True)
    written = [op for op in op_types(case.expanded) if op not in ("Scan", "Unsqueeze")]
    assert written == expected.split()


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_constant_weights_need_no_nodes(op: str) -> None:
    case = Case(op, direction="bidirectional", static=True)
    outside = [node.op_type for node in case.expanded.graph.node]
    assert sorted(outside) == sorted(["Scan"] * 2 + ["Unsqueeze"] * 4 + ["Concat"] * 2)
    names = {tensor.name for tensor in case.expanded.graph.initializer}
    assert not names & {"W", "R", "B"}, "the original weights are still there"


def test_coupled_gates_read_no_weights_of_the_forget_gate() -> None:
    case = Case("LSTM", input_forget=1, static=True)
    sizes = {tuple(t.dims) for t in case.expanded.graph.initializer if len(t.dims) == 2}
    assert sizes == {(case.I, 3 * case.H), (case.H, 3 * case.H), (case.N, case.H)}


@pytest.mark.parametrize(
    ("lengths", "static", "masked"),
    [(None, True, False), ((4, 4), True, False), ((4, 4), False, True), ((4, 3), True, True)],
)
def test_full_lengths_need_no_mask(
    lengths: tuple[int, ...] | None, static: bool, masked: bool
) -> None:
    case = Case("GRU", lengths=lengths, static=static, constant=frozenset({"W", "sequence_lens"}))
    check(case)
    assert ("Where" in op_types(case.expanded)) == masked


def test_lengths_are_never_repeated() -> None:
    text = """
        <ir_version: 8, opset_import: ["": 17]>
        g (double[S,N,3] x, double[1,9,3] w, double[1,9,3] r, int32[M] lengths)
            => (double[S,1,N,3] y) { y = GRU <hidden_size: int = 3> (x, w, r, , lengths) }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    recurrent_to_scan(model)
    rng = np.random.default_rng(3)
    x, w, r = (rng.standard_normal(shape) for shape in ((4, 2, 3), (1, 9, 3), (1, 9, 3)))
    feeds, lengths = {"x": x, "w": w, "r": r}, np.array([3, 1], np.int32)
    (y,) = evaluator.run(ir.to_proto(model), {**feeds, "lengths": lengths})
    np.testing.assert_allclose(y, oracle.gru(x, w, r, sequence_lens=lengths)[0], rtol=1e-12)
    with pytest.raises(ValueError, match="reshape"):
        evaluator.run(ir.to_proto(model), {**feeds, "lengths": lengths[:1]})


def test_unused_sequence_is_not_scanned() -> None:
    (scan,) = (n for n in Case("LSTM", outputs=("Y_h",)).expanded.graph.node if n.op_type == "Scan")
    assert len(scan.output) == 2


def test_node_without_used_outputs_is_removed() -> None:
    model = ir.from_proto(Case("GRU").model)
    for output in list(model.graph.outputs):
        model.graph.outputs.remove(output)
    model.graph.outputs.append(model.graph.inputs[0])
    assert recurrent_to_scan(model) == 1
    assert len(model.graph) == 0


def test_outputs_keep_their_names_and_layers_stack() -> None:
    text = """
        <ir_version: 8, opset_import: ["": 17]>
        g (double[S,N,3] x, double[1,9,3] w, double[1,9,3] r, int64[1] axis)
            => (double[1,N,3] last, double[S,N,3] sum)
        {
            y, first = GRU <hidden_size: int = 3> (x, w, r)
            flat = Squeeze (y, axis)
            last_y, last = GRU <hidden_size: int = 3> (flat, w, r)
            sum = Add (flat, flat)
        }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    assert recurrent_to_scan(model) == 2
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    rng = np.random.default_rng(3)
    x, w, r = (rng.standard_normal(shape) for shape in ((4, 2, 3), (1, 9, 3), (1, 9, 3)))
    last, total = evaluator.run(proto, {"x": x, "w": w, "r": r, "axis": np.array([1])})
    first = oracle.gru(x, w, r)[0][:, 0]
    np.testing.assert_allclose(total, 2 * first, rtol=1e-12)
    np.testing.assert_allclose(last, oracle.gru(first, w, r)[1], rtol=1e-12)
    assert [output.name for output in proto.graph.output] == ["last", "sum"]


def test_shared_weights_stay_for_the_other_reader() -> None:
    case = Case("GRU")
    proto = onnx.ModelProto.FromString(case.model.SerializeToString())
    proto.graph.node.add(op_type="Identity", input=["W"], output=["w_again"])
    proto.graph.output.append(onnx.helper.make_tensor_value_info("w_again", 11, None))
    model = ir.from_proto(proto)
    recurrent_to_scan(model)
    *_, again = evaluator.run(ir.to_proto(model), case.feeds)
    np.testing.assert_array_equal(again, case.arrays["W"])


def test_inside_a_branch_with_outer_weights() -> None:
    text = """
        <ir_version: 8, opset_import: ["": 17]>
        g (bool c, double[S,N,3] x, double[1,9,3] w, double[1,9,3] r) => (double[1,N,3] out) {
            out = If (c) <
                then_branch = t () => (double[1,N,3] a) {
                    y1, a = GRU <hidden_size: int = 3> (x, w, r) },
                else_branch = e () => (double[1,N,3] b) {
                    y2, b = GRU <hidden_size: int = 3, linear_before_reset: int = 1> (x, w, r) }
            >
        }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    assert recurrent_to_scan(model) == 2
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    rng = np.random.default_rng(3)
    x, w, r = (rng.standard_normal(shape) for shape in ((4, 2, 3), (1, 9, 3), (1, 9, 3)))
    for c in (True, False):
        (out,) = evaluator.run(proto, {"c": np.array(c), "x": x, "w": w, "r": r})
        want = oracle.gru(x, w, r, linear_before_reset=int(not c))[1]
        np.testing.assert_allclose(out, want, rtol=1e-12)


def test_a_function_must_be_inlined_first() -> None:
    text = """
        <ir_version: 8, opset_import: ["": 17, "local": 1]>
        g (double[S,N,3] x, double[1,9,3] w, double[1,9,3] r) => (double[1,N,3] out) {
            out = local.layer (x, w, r)
        }
        <domain: "local", opset_import: ["": 17]>
        layer (x, w, r) => (h) { y, h = GRU <hidden_size: int = 3> (x, w, r) }"""
    with pytest.raises(UnsupportedError, match="layer"):
        recurrent_to_scan(ir.from_proto(onnx.parser.parse_model(text)))


def test_models_without_recurrences_are_left_alone() -> None:
    text = '<ir_version: 3, opset_import: ["": 6]> g (float[2] x) => (float[2] y) { y = Relu (x) }'
    model = ir.from_proto(onnx.parser.parse_model(text))
    assert recurrent_to_scan(model) == 0
    assert model.opset_imports == {"": 6} and model.ir_version == 3
