"""Code with clocks computes the same bits; without them nothing of it is there."""

from __future__ import annotations

import ctypes

import numpy as np
import onnx.parser

from ostinato.codegen.clocks import HEAD, TABLE, words
from ostinato.compiler import compile_model, stages
from ostinato.native.function import NativeFunction
from ostinato.options import Options
from ostinato.schedule.pipeline import Scheduled
from ostinato.stages.stage import NativeStage

TEXT = """<ir_version: 9, opset_import: ["": 20]>
g (float[T, 1, 3] x, float[1, 9, 3] w, float[1, 9, 3] r) => (float[T, 1, 1, 3] y) {
  y, h = GRU<hidden_size=3, linear_before_reset=1>(x, w, r)
}"""
OPTIONS = Options(cache_dir=None)


def test_clocks_are_there_only_when_asked_for() -> None:
    model = onnx.parser.parse_model(TEXT)
    assert "clock" not in dict(stages(model, OPTIONS))["llvm"]


def test_clocks_change_no_bit() -> None:
    model, random = onnx.parser.parse_model(TEXT), np.random.default_rng(0)
    shapes = {"x": (5, 1, 3), "w": (1, 9, 3), "r": (1, 9, 3)}
    feed = {n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    results = []
    scheduled: list[Scheduled] = []
    for clocked in (None, scheduled):
        (stage,) = compile_model(model, OPTIONS, clocked=clocked).stages
        assert isinstance(stage, NativeStage)
        results.append(NativeFunction(stage.artifact).run(feed, {})["y"])
    np.testing.assert_array_equal(*results)
    assert len(scheduled) == 1


def test_clocks_of_several_threads_change_no_bit() -> None:
    text = """<ir_version: 9, opset_import: ["": 20]>
    g (float[256, 256] x) => (float[256, 256] y) { a = MatMul(x, x) y = Tanh(a) }"""
    model, x = onnx.parser.parse_model(text), np.eye(256, dtype=np.float32)
    scheduled: list[Scheduled] = []
    results = []
    for clocked in (None, scheduled):
        options = Options(cache_dir=None, threads=2)
        (stage,) = compile_model(model, options, clocked=clocked).stages
        assert isinstance(stage, NativeStage)
        function = NativeFunction(stage.artifact)
        assert function.team is not None
        results.append(function.run({"x": x}, {})["y"])
    np.testing.assert_array_equal(*results)
    kernels = len(list(scheduled[0].program.kernels()))
    row = (ctypes.c_int64 * words(kernels)).from_address(function.address(TABLE))
    assert all(ticks > 0 for ticks in row[HEAD : HEAD + 2 * kernels : 2])
    assert row[HEAD + 1 : HEAD + 2 * kernels : 2] == [1] * kernels
