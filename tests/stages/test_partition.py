from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import pytest

from ostinato import InferenceSession
from ostinato.errors import UnsupportedError
from ostinato.model.load import load_model
from ostinato.ops import LOWERINGS
from ostinato.passes.pipeline import run_passes
from ostinato.stages.partition import Partition, _Partitioner, partition
from ostinato.stages.stage import FallbackStage
from tests.golden import parse

# Operators that have no native form in these tests; lengths depend on the data.
UNKNOWN = "NonZero"


@pytest.fixture(autouse=True)
def without_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (UNKNOWN, "Unique"):
        monkeypatch.delitem(LOWERINGS, name)


def parts(model: onnx.ModelProto) -> Partition:
    loaded = load_model(model)
    run_passes(loaded)
    return partition(loaded, fallback=True)


def kinds(model: onnx.ModelProto) -> list[str]:
    return [part.op if isinstance(part, FallbackStage) else "native" for part in parts(model).parts]


def run(model: onnx.ModelProto, **feeds: np.ndarray) -> list[np.ndarray]:
    return InferenceSession(model, cache_dir=None).run(None, feeds)


BEHIND = parse("""
    g (float[N, 4] x, float[M] c) => (float[a, b] y, int64[k, j] places, int64[2] sizes) {
        sizes = Shape(x)
        d = Neg(x)
        places = NonZero(c)
        two = Constant <value = int64[1] {2}> ()
        first = Slice(sizes, zero, one)
        halves = Concat <axis = 0> (first, two, two)
        e = Reshape(d, halves)
        total = ReduceSum <keepdims = 0> (e, last)
        count = Shape <start = 1> (places)
        float_count = Cast <to = 1> (count)
        y = Mul(total, float_count)
    }
    """)
BEHIND.graph.initializer.extend(
    onnx.helper.make_tensor(name, onnx.TensorProto.INT64, [1], [value])
    for name, value in (("zero", 0), ("one", 1), ("last", 2))
)


def test_sizes_are_still_known_behind_a_fallback_node():
    result = parts(BEHIND)
    reasons = [part.reason for part in result.parts if isinstance(part, FallbackStage)]
    assert reasons == ["has no native form"]
    x, c = np.arange(12, dtype="f").reshape(3, 4), np.array([0, 2, 3], "f")
    y, places, sizes = run(BEHIND, x=x, c=c)
    assert y.tolist() == (-2 * x.reshape(3, 2, 2).sum(2)).tolist()
    assert places.tolist() == [[1, 2]]
    assert sizes.tolist() == [3, 4]


def test_numbers_known_while_compiling_are_given_to_fallback_nodes():
    model = parse("""
        g (float[N, 3] x) => (string[r] t) <int64[1] one = {1}, int64[1] two = {2}> {
            s = Shape(x)
            w = Slice(s, one, two)
            t = Cast <to = 8> (w)
        }
        """)
    result = parts(model)
    assert kinds(model) == ["Cast"]
    assert [constant.numpy().tolist() for constant in result.constants.values()] == [[3]]
    assert run(model, x=np.zeros((2, 3), "f"))[0].tolist() == ["3"]


def test_bodies_carry_the_constants_they_read():
    model = parse("""
        g (int64 n, bool c, float[N] x) => (float[N] last, int64[t, r, k] y) <float[1] ten = {10}> {
            last, y = Loop (n, c, x) <
                body = b (int64 i, bool d, float[N] s) => (bool e, float[N] a, int64[r, k] p) {
                    e = Identity(d)  a = Sub(s, ten)  p = NonZero(a)
                }
            >
        }
        """)
    (stage,) = [p for p in parts(model).parts if isinstance(p, FallbackStage)]
    assert {argument.name for argument in stage.inputs} == {"n", "c", "x"}
    last, y = run(model, n=np.array(1), c=np.array(True), x=np.array([0, 10, 20], "f"))
    assert last.tolist() == [-10, 0, 10]
    assert y.tolist() == [[[0, 2]]]


@pytest.mark.parametrize("count", [1, 3])
def test_a_size_that_may_be_one_is_not_taken_for_another(count: int):
    model = parse("""
        g (float[N] c, int64[3] x) => (int64[a, b] y) {
            i = NonZero(c)
            y = Add(i, x)
        }
        """)
    c = np.array([1] * count + [0], "f")
    (y,) = run(model, c=c, x=np.array([10, 20, 30]))
    assert y.tolist() == (np.arange(count)[None] + [10, 20, 30]).tolist()


def test_without_fallback_the_node_is_refused():
    with pytest.raises(UnsupportedError, match=UNKNOWN):
        InferenceSession(BEHIND, fallback=False, cache_dir=None)


def stage_names(model: onnx.ModelProto) -> list[tuple[str, list[str], list[str]]]:
    """Each part with the values it reads and those it makes."""
    found = []
    for part in parts(model).parts:
        if isinstance(part, FallbackStage):
            found.append((part.op, [a.name for a in part.inputs], [a.name for a in part.outputs]))
        else:
            ends = part.program.inputs, part.program.outputs
            found.append(("native", *([i.name for i in side] for side in ends)))
    return found


SEVERAL = parse("""
    g (float[N] x, float[N] z)
        => (float[a] y, float[a] number, int64[a] first, float[N] shifted, float[N] kept) {
        negative = Neg(x)
        kept = Add(negative, z)
        values, first, , counts = Unique(negative)
        y = Add(values, values)
        number = Cast <to = 1> (counts)
        shifted = Add(kept, negative)
    }
    """)


def test_a_fallback_node_with_several_outputs_in_the_middle():
    before, unique, behind = stage_names(SEVERAL)
    assert before[0] == behind[0] == "native"
    assert before[1] == ["x", "z"]
    assert sorted(before[2]) == ["kept", "negative"]
    assert unique == ("Unique", ["negative"], ["values", "first", "counts"])
    assert sorted(behind[1]) == ["counts", "kept", "negative", "values"]
    assert sorted(behind[2]) == ["number", "shifted", "y"]
    x, z = np.array([2, -1, 2, 0], "f"), np.array([10, 20, 30, 40], "f")
    y, number, first, shifted, kept = run(SEVERAL, x=x, z=z)
    assert y.tolist() == [-4, 0, 2]
    assert number.tolist() == [2, 1, 1]
    assert first.tolist() == [0, 3, 1]
    assert kept.tolist() == (z - x).tolist()
    assert shifted.tolist() == (z - 2 * x).tolist()


def test_two_fallback_nodes_in_a_row_have_nothing_between_them():
    model = parse("""
        g (float[N] x) => (int64[a, b] y) {
            values = Unique(x)
            y = NonZero(values)
        }
        """)
    assert kinds(model) == ["Unique", "NonZero"]
    assert run(model, x=np.array([3, 0, 3, 5], "f"))[0].tolist() == [[1, 2]]


def test_values_that_bodies_capture_are_inputs_of_the_fallback_node():
    """Made by the native segment before it; what only the body makes is none."""
    model = parse("""
        g (int64 n, bool c, float[N] x) => (int64[t, r, k] y, float[N] twice) {
            a = Neg(x)
            twice = Add(a, a)
            y = Loop (n, "") <body = b (int64 i, bool d) => (bool e, int64[r, k] q) {
                e = Identity(d)
                own = Add(a, x)
                q = If (c) <
                    then_branch = tt () => (int64[r, k] s) { s = NonZero(own) },
                    else_branch = ee () => (int64[r, k] u) { u = NonZero(twice) }
                >
            }>
        }
        """)
    before, loop = stage_names(model)
    assert before[0] == "native" and sorted(before[2]) == ["a", "twice"]
    assert loop[0] == "Loop"
    assert sorted(loop[1]) == ["a", "c", "n", "twice", "x"]
    x = np.array([0, 4, 0, 1], "f")
    for c, places in ((True, []), (False, [1, 3])):
        y, twice = run(model, n=np.array(1), c=np.array(c), x=x)
        assert y.tolist() == [[places]]
        assert twice.tolist() == (-2 * x).tolist()


def test_native_bodies_read_values_of_an_earlier_segment():
    model = parse("""
        g (bool c, float[N] x) => (float[N] y, int64[a, b] places) {
            a = Neg(x)
            places = NonZero(x)
            y = If (c) <
                then_branch = t () => (float[N] p) { p = Add(a, x) },
                else_branch = e () => (float[N] q) { q = Add(a, a) }
            >
        }
        """)
    assert kinds(model) == ["native", "NonZero", "native"]
    x = np.array([1, 0, -2], "f")
    for c, expected in ((True, [0, 0, 0]), (False, [-2, 0, 4])):
        y, places = run(model, c=np.array(c), x=x)
        assert y.tolist() == expected
        assert places.tolist() == [[0, 2]]


@pytest.mark.parametrize("middle", ["places = NonZero(x)", "places = Shape(x)"])
def test_outputs_that_are_inputs_or_constants(middle: str):
    """In one native segment, and where a fallback node stands beside them."""
    shape = "int64[a, b]" if "NonZero" in middle else "int64[1]"
    model = parse(f"""
        g (float[N] x) => (float[N] same, {shape} places, float[2] fixed, float[N] again)
            <float[2] two = {{1.5, 2.5}}> {{
            same = Identity(x)
            {middle}
            fixed = Identity(two)
            again = Identity(x)
        }}
        """)
    x = np.array([5, 0, 7], "f")
    same, places, fixed, again = run(model, x=x)
    assert same.tolist() == again.tolist() == x.tolist()
    assert places.tolist() == ([[0, 2]] if "NonZero" in middle else [3])
    assert fixed.tolist() == [1.5, 2.5]
    same[:] = 0
    assert again.tolist() == x.tolist() == [5, 0, 7]


def test_results_are_not_the_arrays_that_were_given():
    model = parse("g (float[2] x) => (float[2] y) { y = Identity(x) }")
    x = np.array([1, 2], "f")
    (y,) = run(model, x=x)
    y[:] = 9
    assert x.tolist() == [1, 2]


def test_constants_behind_a_fallback_node_are_held_by_the_compiled_model():
    """The same arrays are given in every run, whatever was done to those of the last one."""
    model = parse("""
        g (float[N] x) => (int64[a, b] places, float[2] fixed) <float[2] two = {1.5, 2.5}> {
            places = NonZero(x)
            fixed = Identity(two)
        }
        """)
    session = InferenceSession(model, cache_dir=None)
    for _ in range(2):
        _, fixed = session.run(None, {"x": np.ones(3, "f")})
        assert fixed.tolist() == [1.5, 2.5]
        fixed[:] = 0


def test_dead_nodes_without_a_native_form_cost_nothing():
    model = parse("""
        g (float[N] x) => (float[N] y) {
            unused = NonZero(x)
            y = Neg(x)
        }
        """)
    assert kinds(model) == ["native"]


MASK = parse("""
    g (int64[N] lengths, float[N, T] x) => (float[N, T] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] last = {1}> {
        longest = ReduceMax <keepdims = 0> (lengths)
        steps = Range(zero, longest, one)
        column = Unsqueeze(lengths, last)
        mask = Less(steps, column)
        m = Cast <to = 1> (mask)
        y = Mul(x, m)
    }
    """)


def test_a_computed_size_cuts_the_model_before_what_depends_on_it():
    first, second = parts(MASK).parts
    assert [output.name for output in first.program.outputs] == ["longest"]
    (value,) = [one for one in second.program.inputs if one.values]
    assert (value.name, value.values) == ("longest", ("longest[]",))


def test_an_input_that_tells_sizes_does_not_cut_the_model():
    model = parse("""
        g (float[N] x, int64[1] half, int64[1] k) => (float[a] y, float[1] z)
            <int64[1] two = {2}> {
            end = Mul(half, two)
            y = Slice(x, half, end)
            z = Gather(x, k)
        }
        """)
    (part,) = parts(model).parts
    assert {one.name: one.values for one in part.program.inputs} == {
        "x": (), "half": ("half[0]",), "k": ()
    }  # fmt: skip
    x = np.arange(6, dtype="f")
    y, z = run(model, x=x, half=np.array([2]), k=np.array([5]))
    assert (y.tolist(), z.tolist()) == ([2, 3], [5])


def test_sizes_of_data_inside_a_body_are_native():
    """The runtime sees no value between two steps."""
    model = parse("""
        g (int64[N] x, int64 n) => (int64[N] z) <int64 zero = {0}, int64 one = {1}> {
            z = Loop (n, , x) <
                body = b (int64 i, bool c, int64[N] s) => (bool d, int64[N] t) {
                    d = Identity(c)
                    most = ReduceMax <keepdims = 0> (s)
                    r = Range(zero, most, one)
                    total = ReduceSum <keepdims = 0> (r)
                    t = Add(s, total)
                }
            >
        }
        """)
    assert kinds(model) == ["native"]
    assert run(model, x=np.array([1, 3]), n=np.int64(2))[0].tolist() == [19, 21]


def test_without_fallback_sizes_of_values_are_no_reason_to_refuse():
    session = InferenceSession(MASK, fallback=False, cache_dir=None)
    x = np.ones((2, 3), "f")
    (y,) = session.run(None, {"lengths": np.array([1, 3]), "x": x})
    assert y.tolist() == [[1, 0, 0], [1, 1, 1]]


def test_outputs_have_the_sizes_that_are_computed_not_those_that_a_file_claims() -> None:
    model = parse("""
        g (float[N, 4] x) => (float[5, 3] y, float[M, 7] z, float[2] flat) {
            y = Neg(x)
            z = Concat<axis = 0>(x, x)
            flat = Abs(x)
        }""")
    outputs = InferenceSession(model, cache_dir=None).get_outputs()
    assert [o.shape for o in outputs] == [["N", 4], ["M", 4], ["N", 4]]


def test_the_program_for_other_sizes_knows_what_the_first_one_asked_for(
    monkeypatch: pytest.MonkeyPatch,
):
    operands: list[int] = []
    run = _Partitioner.run

    def counting(attempt: _Partitioner) -> Partition:
        operands.append(len(attempt._shape_operands))
        return run(attempt)

    monkeypatch.setattr(_Partitioner, "run", counting)
    model = onnx.ModelProto()
    model.CopyFrom(MASK)
    vector = partial(onnx.helper.make_tensor_value_info, elem_type=onnx.TensorProto.FLOAT)
    model.graph.input.extend([vector("u", shape=["A"]), vector("v", shape=["B"])])
    model.graph.output.append(vector("w", shape=["C"]))
    model.graph.node.append(onnx.helper.make_node("Add", ["u", "v"], ["w"]))
    session = InferenceSession(model, cache_dir=None)
    assert session.report().assumptions
    assert operands == [0, 1, 1]
