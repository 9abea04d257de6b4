"""Kernels that differ in names only share a function; all others have one of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper, numpy_helper

import ostinato
import ostinato.codegen.kernel_functions
from ostinato.codegen.alike import form
from ostinato.codegen.module import module_text
from ostinato.codegen.target import host_target
from ostinato.compiler import stages
from ostinato.options import Options
from ostinato.program.expr import Access, Axis, Const, Load, op
from ostinato.program.kernel import Kernel, Reduce, Store, Tile
from ostinato.program.laid import lay_out
from ostinato.program.nodes import Buffer
from ostinato.schedule.arena import plan
from ostinato.sizes.dims import Size, symbol
from tests.program.programs import program


def kernel(tag: str, scale: float | bool = 1.0, extent: Size = 8, stride: int = 1) -> Kernel:
    axis, depth = Axis(f"i{tag}", extent), Axis(f"r{tag}", 4)
    x = Load(Access(f"x{tag}", 0, ((axis, stride), (depth, 8))), "float32")
    value = op("mul", x, Const(scale, "float32"))
    total = Reduce((depth,), "sum", value)
    store = Store(Access(f"y{tag}", 0, ((axis, 1),)), op("add", x, x))
    return Kernel(f"k{tag}", (axis,), (total,), (store,), sources=(tag,))


def buffers(tag: str, dtype: str = "float32", padded: bool = False) -> dict[str, Buffer]:
    return {
        f"{kind}{tag}": Buffer(f"{kind}{tag}", dtype, 64, "arena", padded) for kind in ("x", "y")
    }


def test_names_do_not_matter() -> None:
    assert form(kernel("a"), buffers("a")) == form(kernel("b"), buffers("b"))


@pytest.mark.parametrize(
    "other",
    [
        kernel("b", scale=2.0),
        kernel("b", scale=-1.0),
        kernel("b", extent=9),
        kernel("b", stride=2),
        replace(kernel("b"), tile=Tile(None, 1)),
        replace(kernel("b"), reductions=()),
        replace(kernel("b"), stores=kernel("b").stores * 2),
    ],
)
def test_everything_else_does(other: Kernel) -> None:
    assert form(kernel("a"), buffers("a")) != form(other, buffers("b"))


@pytest.mark.parametrize("pair", [(0.0, -0.0), (1.0, True)])
def test_constants_that_compare_equal_are_told_apart(pair: tuple[float, float]) -> None:
    left, right = (form(kernel("a", scale), buffers("a")) for scale in pair)
    assert left != right


@pytest.mark.parametrize("facts", [buffers("a", "float64"), buffers("a", padded=True)])
def test_facts_of_buffers_matter(facts: dict[str, Buffer]) -> None:
    assert form(kernel("a"), buffers("a")) != form(kernel("a"), facts)


def test_one_buffer_twice_is_not_two_buffers() -> None:
    apart = kernel("a")
    store = replace(apart.stores[0], access=replace(apart.stores[0].access, buffer="xa"))
    assert form(apart, buffers("a")) != form(replace(apart, stores=(store,)), buffers("a"))


def test_equal_layers_are_compiled_once_and_each_reads_its_own_weights() -> None:
    random = np.random.default_rng(0)
    weights = [random.standard_normal((24, 24)).astype(np.float32) / 5 for _ in range(6)]
    nodes = [
        node
        for i in range(6)
        for node in (
            helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"m{i}"]),
            helper.make_node("Tanh", [f"m{i}"], [f"x{i + 1}"]),
        )
    ]
    x, y = (helper.make_tensor_value_info(name, 1, ["N", 24]) for name in ("x0", "x6"))
    constants = [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)]
    graph = helper.make_graph(nodes, "layers", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    llvm = dict(stages(model, Options()))["llvm"]
    assert llvm.count('define internal i1 @"kernel.') == 1
    assert llvm.count('call i1 @"kernel.') == 6
    feed = random.standard_normal((5, 24)).astype(np.float32)
    expected = feed.astype(np.float64)
    for w in weights:
        expected = np.tanh(expected @ w)
    (result,) = ostinato.InferenceSession(model).run(None, {"x0": feed})
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_a_function_is_written_once_for_all_programs_that_have_its_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = host_target()

    def text(tag: str, symbols: tuple[str, ...], extent: Size) -> str:
        shapes = {f"x{tag}": (symbol("N"), symbol("M"))}, {f"y{tag}": (symbol("N"),)}
        made = program(*shapes, (kernel(tag, extent=extent),), symbols=symbols)
        return module_text(made, plan(made), lay_out(made.constants), target)

    def refuse(*_: object) -> None:
        raise AssertionError("written again")

    n = symbol("N")
    first, other = text("a", ("N", "M"), 4 * n), text("a", ("M", "N"), 4 * n)
    assert first != other, "the size has another place in the table"
    with monkeypatch.context() as patch:
        patch.setattr(ostinato.codegen.kernel_functions, "KernelEmitter", refuse)
        assert text("b", ("N", "M"), 4 * n) == first.replace("kernel.ka", "kernel.kb")
        with pytest.raises(AssertionError, match="written again"):
            text("c", ("N", "M"), 5 * n)
