"""Neighbours along a short axis, stored as sums of each point."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.codegen.target import host_target
from ostinato.compiler import stages
from ostinato.machine.record import AVX2, AVX512, Machine
from ostinato.options import Options
from ostinato.program.expr import Axis, Reduced, op
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.nodes import Program
from ostinato.schedule.interleave import interleave
from ostinato.schedule.tile import lane_of
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import assert_same_results, check_unchanged, shown

CHANNELS, FILTERS = 12, 16


def transposed(count: int, positions: int = 9) -> Program:
    """The filters of a transposed convolution: `count` results for each position of a row."""
    f, i, j = Axis("f", FILTERS), Axis("i", positions), Axis("j", count)
    c = Axis("c", CHANNELS)
    x, w = at("x", (c, positions), (i, 1)), at("w", (c, FILTERS * count), (f, 1), (j, FILTERS))
    stored = store("y", Reduced(0, "float32"), (f, positions * count), (i, count), (j, 1))
    kernel = Kernel("k", (f, i, j), (Reduce((c,), "sum", x, w),), (stored,))
    shapes = {"x": (CHANNELS, positions), "w": (CHANNELS, count, FILTERS)}
    return program(shapes, {"y": (FILTERS, positions * count)}, (kernel,))


def enlarged(count: int) -> Program:
    """Each element of a row `count` times, with a function of it."""
    i, j = Axis("i", 11), Axis("j", count)
    value = op("neg", at("x", (i, 1)))
    kernel = Kernel("k", (i, j), (), (store("y", value, (i, count), (j, 1)),))
    return program({"x": (11,)}, {"y": (11 * count,)}, (kernel,))


@pytest.mark.parametrize(("count", "machine"), [(2, AVX2), (4, AVX512)])
def test_sums_of_a_point_write_neighbours(count: int, machine: Machine) -> None:
    source = transposed(count)
    changed = interleave(source, machine)
    (before,), (after,) = source.kernels(), changed.kernels()
    assert len(after.reductions) == len(after.stores) == count
    assert after.axes == before.axes[:-1]
    assert_same_results(source, changed)


def test_text() -> None:
    assert shown(interleave(enlarged(2), AVX2)).splitlines()[-4:] == [
        "kernel k [i < 11]",
        "  v0 = neg(x[i])",
        "  y[2*i] = v0",
        "  y[2*i + 1] = v0",
    ]


@pytest.mark.parametrize(("count", "machine"), [(2, AVX2), (3, AVX2), (3, AVX512), (4, AVX512)])
def test_elements_that_are_repeated(count: int, machine: Machine) -> None:
    changed = interleave(enlarged(count), machine)
    assert len(next(changed.kernels()).stores) == count
    assert_same_results(enlarged(count), changed)


@pytest.mark.parametrize("machine", [AVX2, AVX512])
def test_axes_that_fill_vectors_stay(machine: Machine) -> None:
    """One element for all lanes takes no shuffles."""
    check_unchanged(lambda p: interleave(p, machine), enlarged(8))


def test_what_is_transposed_in_registers_stays() -> None:
    i, j = Axis("i", 64), Axis("j", 8)
    value = op("neg", at("x", (j, 64), (i, 1)))
    kernel = Kernel("k", (i, j), (), (store("y", value, (i, 8), (j, 1)),))
    source = program({"x": (8, 64)}, {"y": (64, 8)}, (kernel,))
    check_unchanged(lambda p: interleave(p, AVX2), source)


def test_lanes_fill_memory() -> None:
    """More rows would fill more vectors, whose lanes lie apart."""
    r, i = Axis("r", 384), Axis("i", 40)
    value = op("neg", at("x", (r, 40), (i, 1)))
    stores = tuple(store("y", value, (r, 320), (i, 8), offset=k) for k in range(8))
    source = program({"x": (384, 40)}, {"y": (384, 320)}, (Kernel("k", (r, i), (), stores),))
    assert lane_of(next(source.kernels()), AVX512, source.buffers) == i


def test_sums_without_rows_stay() -> None:
    """Rows along the only other axis share weights, and sums of a point share nothing more."""
    t, n, c = Axis("t", 200), Axis("n", 8), Axis("c", 256)
    reduce = Reduce((c,), "sum", at("x", (c, 200), (t, 1)), at("w", (c, 8), (n, 1)))
    stored = store("y", Reduced(0, "float32"), (t, 8), (n, 1))
    kernel = Kernel("k", (t, n), (reduce,), (stored,))
    source = program({"x": (256, 200), "w": (256, 8)}, {"y": (200, 8)}, (kernel,))
    check_unchanged(lambda p: interleave(p, AVX2), source)


@pytest.mark.parametrize("source", [transposed(3), transposed(16), enlarged(5)])
def test_other_lengths_stay(source: Program) -> None:
    check_unchanged(lambda p: interleave(p, AVX2), source)


def test_rows_that_share_more_than_sums_do_stay() -> None:
    """Lanes along a long row share what they load with all filters, of which there are few."""
    f, i, j, c = Axis("f", 4), Axis("i", 64), Axis("j", 2), Axis("c", 32)
    w = at("w", (f, 64), (j, 32), (c, 1))
    reduce = Reduce((c,), "sum", at("x", (c, 64), (i, 1)), w)
    stored = store("y", Reduced(0, "float32"), (f, 128), (i, 2), (j, 1))
    kernel = Kernel("k", (f, i, j), (reduce,), (stored,))
    source = program({"x": (32, 64), "w": (4, 2, 32)}, {"y": (4, 128)}, (kernel,))
    check_unchanged(lambda p: interleave(p, AVX2), source)


RESIZED = """
<ir_version: 10, opset_import: ["" : 17]>
resized (float[1, 3, N] x) => (float[1, 3, M] y)
<float[3] scales = {1, 1, 2}>
{
    r = Resize<mode = "nearest", nearest_mode = "floor",
               coordinate_transformation_mode = "asymmetric">(x, , scales)
    y = Relu(r)
}
"""


def resized(length: int) -> onnx.ModelProto:
    return onnx.parser.parse_model(RESIZED.replace("N]", f"{length}]").replace("M]", "L]"))


@pytest.mark.parametrize(
    "target",
    [
        "host",
        pytest.param(
            "x86-64-v3",
            marks=pytest.mark.skipif(
                not host_target().triple.startswith("x86_64"), reason="no x86-64"
            ),
        ),
    ],
)
def test_lanes_that_do_not_exist_write_nothing(target: str) -> None:
    open_size = ostinato.InferenceSession(
        onnx.parser.parse_model(RESIZED), cache_dir=None, target=target
    )
    for length in (1, 7, 8, 17, 50):
        x = np.random.default_rng(length).standard_normal((1, 3, length)).astype(np.float32)
        expected = np.repeat(np.maximum(x, 0), 2, -1)
        known = ostinato.InferenceSession(resized(length), cache_dir=None, target=target)
        for session in (open_size, known):
            guarded = np.full((5, 2 * length), 7, np.float32)
            session.run(None, {"x": x}, out={"y": guarded[None, 1:-1]})
            np.testing.assert_array_equal(guarded[None, 1:-1], expected)
            assert (guarded[[0, -1]] == 7).all()


def test_repeated_elements_are_whole_vectors() -> None:
    llvm = dict(stages(resized(64), Options(target="x86-64-v3")))["llvm"]
    assert "store <8 x float>" in llvm and "masked.store" not in llvm


def test_copies_stay() -> None:
    """Their readers choose their layout."""
    source = enlarged(2)
    copy = {"y": dataclasses.replace(source.buffers["y"], is_copy=True)}
    source = dataclasses.replace(source, buffers=source.buffers | copy)
    check_unchanged(lambda p: interleave(p, AVX2), source)


def test_lanes_that_exist_need_no_mask_in_whole_vectors() -> None:
    """Without registers for masks, one store under a mask takes as long as many others."""
    llvm = dict(stages(onnx.parser.parse_model(RESIZED), Options(target="x86-64-v3")))["llvm"]
    part = llvm.partition("masked.store")[0].rpartition("br i1")[0]
    assert "icmp sge" in part and part.count("store <8 x float>") > 2


BOOLS = """
<ir_version: 10, opset_import: ["" : 17]>
repeated (bool[3, 37] x) => (bool[3, 148] y)
<int64[1] last = {-1}, int64[3] shape = {3, 37, 4}, int64[2] flat = {3, 148}>
{
    n = Not(x)
    u = Unsqueeze(n, last)
    e = Expand(u, shape)
    y = Reshape(e, flat)
}
"""


def test_truth_values_are_whole_vectors_of_bytes() -> None:
    model = onnx.parser.parse_model(BOOLS)
    assert "scatter" not in dict(stages(model, Options()))["llvm"]
    x = np.random.default_rng(0).random((3, 37)) < 0.5
    (y,) = ostinato.InferenceSession(model, cache_dir=None).run(None, {"x": x})
    np.testing.assert_array_equal(y, np.repeat(~x, 4, -1))
