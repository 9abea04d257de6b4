"""What compiling makes of models: kernels per step, one for gates, and the floors in order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import ostinato.compiler
from ostinato import InferenceSession
from ostinato.codegen.artifact import Artifact
from ostinato.compiler import compile_model, optional_passes, stages
from ostinato.errors import ModelError, OptionError, ShapeError, UnsupportedError
from ostinato.guards import Guards
from ostinato.ops import LOWERINGS
from ostinato.optimization import ALL_PASSES
from ostinato.options import Options
from ostinato.schedule.pipeline import SCHEDULE_PASSES
from ostinato.stages.stage import FallbackStage, NativeStage
from tests.cases.table import CASES
from tests.golden import parse

I, H = 24, 128  # noqa: E741
Array = np.ndarray[Any, Any]


def random(*shape: int, seed: int = 0) -> Array:
    values = np.random.default_rng([seed, *shape]).standard_normal(shape)
    return (values / np.sqrt(shape[-1])).astype(np.float32)


def model(text: str, **constants: Array) -> onnx.ModelProto:
    """The model of a text, with named constants."""
    parsed = parse(text)
    parsed.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()
    )
    return parsed


def report(source: onnx.ModelProto, **options: Any) -> dict[str, Any]:
    found = InferenceSession(source, cache_dir=None, **options).report()
    assert not found["fallback"]
    return found


def inside(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The kernels that run in every step of a loop."""
    return [kernel for kernel in found["kernels"] if kernel["in_loop"] is not None]


def weights(gates: int) -> dict[str, Array]:
    return {
        "W": random(1, gates * H, I),
        "R": random(1, gates * H, H),
        "B": random(1, 2 * gates * H),
    }


LSTM = f"""
    g (float[T, 1, {I}] X, float[1, 1, {H}] h, float[1, 1, {H}] c)
        => (float[T, 1, 1, {H}] Y, float[1, 1, {H}] hn, float[1, 1, {H}] cn) {{
        Y, hn, cn = LSTM <hidden_size = {H}> (X, W, R, B, , h, c)
    }}
    """
# The gates of ONNX are i, o, f, c; here the cell's author chose i, f, g, o.
WRITTEN_LSTM = f"""
    g (float[1, {I}] X, float[1, {H}] h, float[1, {H}] c) => (float[1, {H}] hn, float[1, {H}] cn) {{
        xw = MatMul(X, W)
        hr = MatMul(h, R)
        sum = Add(xw, hr)
        gates = Add(sum, B)
        i, f, g, o = Split <axis = 1> (gates, lengths)
        si = Sigmoid(i)
        sf = Sigmoid(f)
        tg = Tanh(g)
        so = Sigmoid(o)
        kept = Mul(sf, c)
        new = Mul(si, tg)
        cn = Add(kept, new)
        shown = Tanh(cn)
        hn = Mul(so, shown)
    }}
    """


def written_lstm() -> onnx.ModelProto:
    lengths = np.full(4, H, np.int64)
    return model(
        WRITTEN_LSTM, W=random(I, 4 * H), R=random(H, 4 * H), B=random(4 * H), lengths=lengths
    )


def test_a_written_out_lstm_cell_is_the_kernel_of_the_lstm_op():
    (cell,) = report(written_lstm())["kernels"]
    (step,) = report(model(LSTM, **weights(4)), specialize={"T": 1})["kernels"]
    assert cell["reductions"] == step["reductions"] == 8
    assert cell["points"] == step["points"]
    assert cell["tile"] == step["tile"]


def test_a_written_out_lstm_cell_computes_the_cell():
    source = written_lstm()
    feeds = {"X": random(1, I, seed=1), "h": random(1, H, seed=2), "c": random(1, H, seed=3)}
    session = InferenceSession(source, cache_dir=None)
    held = {t.name: numpy_helper.to_array(t).astype(np.float64) for t in source.graph.initializer}
    gates = feeds["X"] @ held["W"] + feeds["h"] @ held["R"] + held["B"]
    i, f, g, o = np.split(gates, 4, 1)
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    c = sigmoid(f) * feeds["c"] + sigmoid(i) * np.tanh(g)
    hn, cn = session.run(None, feeds)
    np.testing.assert_allclose(cn, c, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(hn, sigmoid(o) * np.tanh(c), rtol=1e-5, atol=1e-6)


def test_an_lstm_has_one_kernel_in_its_loop_and_its_inputs_are_hoisted():
    found = report(model(LSTM, **weights(4)))
    (step,) = inside(found)
    assert step["reductions"] == 4
    hoisted = [kernel for kernel in found["kernels"] if kernel["hoisted"]]
    assert [kernel["in_loop"] for kernel in hoisted] == [None]
    assert hoisted[0]["reductions"] >= 1
    assert not any(kernel["hoisted"] for kernel in inside(found))


def test_without_hoisting_inputs_are_multiplied_in_every_step():
    found = report(model(LSTM, **weights(4)), disable=("hoist",))
    assert not any(kernel["hoisted"] for kernel in found["kernels"])
    assert sum(kernel["reductions"] for kernel in inside(found)) > 4


def gru(linear_before_reset: int) -> onnx.ModelProto:
    text = f"""
        g (float[T, 1, {I}] X, float[1, 1, {H}] h)
            => (float[T, 1, 1, {H}] Y, float[1, 1, {H}] hn) {{
            Y, hn = GRU <hidden_size = {H}, linear_before_reset = {linear_before_reset}>
                (X, W, R, B, , h)
        }}
        """
    return model(text, **weights(3))


@pytest.mark.parametrize(("linear_before_reset", "count"), [(1, 1), (0, 2)])
def test_kernels_in_the_loop_of_a_gru(linear_before_reset: int, count: int):
    """Reset before the product, r * h has to be complete before the last gate can read it."""
    found = report(gru(linear_before_reset))
    assert len(inside(found)) == count
    assert sum(kernel["reductions"] for kernel in inside(found)) == 3
    assert [k["in_loop"] for k in found["kernels"] if k["hoisted"]] == [None]


def gates(width: int, depth: int = 20) -> onnx.ModelProto:
    text = f"""
        g (float[1, {depth}] x) => (float[1, {width}] y) {{
            xw = MatMul(x, W)
            gates = Add(xw, B)
            a, b, c = Split <axis = 1> (gates, lengths)
            sa = Sigmoid(a)
            tb = Tanh(b)
            ec = Exp(c)
            ab = Mul(sa, tb)
            y = Add(ab, ec)
        }}
        """
    return model(
        text, W=random(depth, 3 * width), B=random(3 * width), lengths=np.full(3, width, np.int64)
    )


def packed_address(line: str) -> tuple[int, int]:
    """Where a sum begins to read its packed operand, and how far it moves with each element."""
    found = re.match(r"r\d+ = sum (\w+) < .*fma\(.*packed\.[\w.]+\[([^]]*)\]", line)
    assert found is not None, line
    terms = found[2].split(" + ")
    (step,) = (int(term.split("*")[0]) for term in terms if term.endswith(f"*{found[1]}"))
    return sum(int(term) for term in terms if term.isdigit()), step


@pytest.mark.parametrize("width", [10, 256])
def test_a_dense_layer_with_gates_is_one_kernel_with_interleaved_weights(width: int):
    source = gates(width)
    (kernel,) = report(source)["kernels"]
    assert kernel["reductions"] == 3
    lanes = int(np.prod([int(n) for n in kernel["tile"].split(" x ")[1:]]))
    lines = dict(stages(source, Options(cache_dir=None)))["schedule"].splitlines()
    sums = [line.strip() for line in lines if re.match(r"\s+r\d+ = ", line)]
    # One stream: the sums read neighbouring groups of lanes, and move on by three of them.
    assert sorted(map(packed_address, sums)) == [(n * lanes, 3 * lanes) for n in range(3)]
    constants = [line for line in lines if line.startswith("constant ")]
    assert sum("packed." in line for line in constants) == 1


def test_specialised_sizes_are_no_symbols():
    compiled = compile_model(
        model(LSTM, **weights(4)), Options(cache_dir=None, specialize={"T": 3})
    )
    assert compiled.inputs[0].shape == (3, 1, I)
    (stage,) = compiled.stages
    assert isinstance(stage, NativeStage)
    assert stage.artifact.symbols == ()


SMALL = """
    g (float[N, M] x, float[N] z) => (float[N, M] y) {
        a = Neg(x)
        y = Exp(a)
    }
    """


def test_unknown_dimensions_are_refused_by_name():
    with pytest.raises(OptionError, match=r"no input has a dimension 'Q'; named: M, N"):
        compile_model(parse(SMALL), Options(cache_dir=None, specialize={"Q": 3, "N": 2}))
    fixed = parse("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    with pytest.raises(OptionError, match="named: none"):
        compile_model(fixed, Options(cache_dir=None, specialize={"N": 2}))


@pytest.mark.parametrize("use", [compile_model, lambda m, o: list(stages(m, o))])
def test_unknown_passes_are_refused_by_name(use):
    with pytest.raises(OptionError, match=r"pass is called 'fuze'; did you mean fuse"):
        use(parse(SMALL), Options(cache_dir=None, disable=("fuse", "fuze")))


def test_passes_of_both_floors_are_optional():
    found = optional_passes()
    assert len(set(found)) == len(found)
    assert set(found) <= {
        *(item.name for item in ALL_PASSES),
        *(item.name for item in SCHEDULE_PASSES),
    }
    assert {"constant_folding", "loop_to_scan", "hoist", "fuse", "reuse_memory"} <= set(found)


@pytest.mark.parametrize("name", optional_passes())
def test_every_optional_pass_can_be_left_out(name: str):
    compiled = compile_model(parse(SMALL), Options(cache_dir=None, disable=(name,)))
    assert name not in compiled.report["passes"]


def test_floors_from_onnx_to_assembly():
    found = list(stages(parse(SMALL), Options(cache_dir=None)))
    assert [name for name, _ in found] == ["onnx", "passes", "program", "schedule", "llvm", "asm"]
    texts = dict(found)
    assert "Neg" in texts["onnx"] and "Exp" in texts["onnx"]
    assert texts["program"].count("kernel ") > 1
    assert texts["schedule"].count("kernel ") == 1
    assert "define i64 @entry" in texts["llvm"] and "define i64 @layout" in texts["llvm"]
    assert "entry:" in texts["asm"]


def test_what_is_printed_is_what_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    emit = ostinato.compiler.emit_object
    monkeypatch.setattr(
        ostinato.compiler,
        "emit_object",
        lambda text, *rest: compiled.append(text) or emit(text, *rest),
    )
    for source in (parse(SMALL), model(LSTM, **weights(4))):
        compiled.clear()
        texts = dict(stages(source, Options(cache_dir=None)))
        printed = list(compiled)
        compiled.clear()
        compile_model(source, Options(cache_dir=None), guarded=Guards.LIKELY)
        assert [texts["llvm"]] == printed == compiled


def test_the_floor_of_passes_shows_the_model_after_each_that_changed_it():
    texts = dict(stages(model(LSTM, **weights(4)), Options(cache_dir=None)))
    _, after = texts["passes"].split("// after recurrent_to_scan\n")
    assert "LSTM" in texts["onnx"] and "Scan" not in texts["onnx"]
    assert "Scan" in after and "LSTM (" not in after


def test_disabled_passes_are_not_on_any_floor():
    texts = dict(
        stages(parse(SMALL), Options(cache_dir=None, disable=("fuse", "constant_folding")))
    )
    assert texts["schedule"].count("kernel ") == 2
    assert "after constant_folding" not in texts["passes"]


def test_floors_of_a_model_in_several_segments(monkeypatch):
    monkeypatch.delitem(LOWERINGS, "NonZero")
    source = parse("""
        g (float[N] x) => (float[k, j] y) {
            a = Neg(x)
            places = NonZero(a)
            numbers = Cast <to = 1> (places)
            y = Exp(numbers)
        }
        """)
    texts = dict(stages(source, Options(cache_dir=None)))
    assert texts["llvm"].count("define i64 @entry") == 2
    with pytest.raises(UnsupportedError, match="NonZero"):
        list(stages(source, Options(cache_dir=None, fallback=False)))


def test_a_model_is_not_changed_by_compiling_it():
    source = model(LSTM, **weights(4))
    before = source.SerializeToString()
    compile_model(source, Options(cache_dir=None, specialize={"T": 2}))
    assert source.SerializeToString() == before


def test_facts_about_passes_and_ops():
    compiled = compile_model(parse(SMALL), Options(cache_dir=None))
    facts = compiled.report
    assert facts["ops"] == {"before": {"Exp": 1, "Neg": 1}, "after": {"Exp": 1, "Neg": 1}}
    assert set(facts["passes"]) == {item.name for item in ALL_PASSES} | {"constant_evaluation"}


def test_artifacts_say_what_they_need_and_what_was_refused():
    source = model(
        f"""
        g (float[N, {I}] x) => (float[N, {I}] y) {{
            a = Exp(x)
            total = ReduceSum <keepdims = 1> (a, last)
            y = Div(a, total)
        }}
        """,
        last=np.array([1], np.int64),
    )
    (stage,) = compile_model(source, Options(cache_dir=None)).stages
    assert isinstance(stage, NativeStage) and isinstance(stage.artifact, Artifact)
    assert [(a.name, a.dtype, a.shape) for a in stage.inputs] == [("x", "float32", ("N", I))]
    assert stage.artifact.symbols == ("N",)
    refusals = stage.artifact.report["refusals"]
    names = {kernel["name"] for kernel in stage.artifact.report["kernels"]}
    assert refusals and {one["producer"] for one in refusals} <= names
    assert all(one["reason"] and one["bytes"] and one["buffer"] for one in refusals)


def test_fallback_stages_stand_between_native_ones(monkeypatch):
    monkeypatch.delitem(LOWERINGS, "NonZero")
    source = parse("""
        g (float[N] x) => (float[k, j] y) {
            a = Neg(x)
            places = NonZero(a)
            numbers = Cast <to = 1> (places)
            y = Exp(numbers)
        }
        """)
    kinds = [type(stage) for stage in compile_model(source, Options(cache_dir=None)).stages]
    assert kinds == [NativeStage, FallbackStage, NativeStage]


STEPS = "lay_out schedule module_text report_kernels emit_object find_target".split()


@pytest.mark.parametrize("step", [*STEPS, "partition", "_op_counts"])
def test_whatever_goes_wrong_in_a_step_is_an_error_of_ours(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise IndexError("wrong")

    monkeypatch.setattr(f"ostinato.compiler.{step}", fails)
    source = model("g (float[N] x) => (float[N] y) { y = Exp(x) }")
    with pytest.raises(ModelError, match=r"graph 'g'|output 'y'.*IndexError: wrong"):
        compile_model(source, Options(cache_dir=None))


@pytest.mark.parametrize(
    "step",
    ["_onnx_text", "lay_out", "schedule", "module_text", "emit_assembly", "verify"],
)
def test_whatever_goes_wrong_in_a_floor_is_an_error_of_ours(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise IndexError("wrong")

    monkeypatch.setattr(f"ostinato.compiler.{step}", fails)
    with pytest.raises(ModelError, match=r"graph 'g'|output 'y'.*IndexError: wrong"):
        list(stages(model("g (float[N] x) => (float[N] y) { y = Exp(x) }"), Options()))


def test_the_code_does_not_depend_on_the_order_of_sets(tmp_path: Path) -> None:
    """Entries of the cache, and what is compiled on another machine, are found by their text."""
    path = tmp_path / "model.onnx"
    (model,) = [case.model for case in CASES if case.name == "GRU-lengths"]
    path.write_bytes(model.SerializeToString())
    program = (
        "import hashlib, sys\n"
        "from ostinato.compiler import Options, stages\n"
        "for name, text in stages(sys.argv[1], Options(cache_dir=None)):\n"
        "    print(name, hashlib.sha256(text.encode()).hexdigest())"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program, path],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[1],
        ).stdout
        for seed in ("0", "1")
    }
    assert len(printed) == 1


def test_sizes_that_only_an_image_without_columns_could_have_are_refused_by_a_run():
    """Kernels of such an image have tiles without points, and so without sums."""
    source = model(
        """
        g (float[1, 3, H, W] x) => (float[A, B, 1, 1] y) <float[4] scales = {1, 1, 2, 2}> {
            p = MaxPool<kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1>(x)
            q = Conv<pads = [0, 0, 0, 1], strides = [2, 1]>(p, w)
            r = Resize<mode = "linear", coordinate_transformation_mode = "asymmetric">(q, , scales)
            z = Concat<axis = 1>(r, q)
            y = GlobalAveragePool(z)
        }""",
        w=random(48, 3, 1, 3),
    )
    session = InferenceSession(source, cache_dir=None)
    with pytest.raises(ShapeError, match="axis 2 of operands to concatenate"):
        session.run(None, {"x": random(1, 3, 16, 16)})
