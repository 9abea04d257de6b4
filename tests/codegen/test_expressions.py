"""Scalar functions and memory accesses in compiled code, against the interpreter."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from ostinato.codegen.target import host_target
from ostinato.element_types import numpy_dtype
from ostinato.machine.record import AVX512
from ostinato.program.expr import (
    BYTE_FLOATS,
    DTYPES,
    FLOATS,
    HALVES,
    Access,
    Axis,
    Cast,
    Extent,
    Index,
    Load,
    Reduced,
    cast,
    constant,
    op,
)
from ostinato.program.functions import BINARY, UNARY
from ostinato.program.kernel import Kernel, Reduce, Tile
from ostinato.sizes.dims import symbol
from tests.codegen.test_module import (
    AARCH64,
    MEMORY_FUNCTIONS,
    TARGETS,
    WIDTHS,
    Native,
    check,
    mixed,
    undefined_symbols,
)
from tests.program.programs import at, program, store

F = np.float32
LENGTHS = range(1, 41)


def sweep(dtype: str) -> np.ndarray:
    """All exponents of both signs, the usual range more densely, and what is special."""
    random = np.random.default_rng(11)
    if dtype == "float32":
        positive = np.arange(0, 0x7F800001, 50021, dtype=np.uint32).view(F)
        dense = [np.linspace(-100, 100, 12_001, dtype=F), np.linspace(-1.6, 1.6, 8_001, dtype=F)]
    else:
        exponents = random.uniform(-1074, 1024, 4_000)
        positive = np.exp2(exponents)
        dense = [np.linspace(-750, 750, 8_001), np.linspace(-1.6, 1.6, 4_001)]
    special = np.array([0, 1, np.inf, np.nan, 0.5, 2], dtype)
    return np.concatenate([positive, -positive, special, -special, *dense])


def functions(dtype: str, extent: int):
    """A program that computes every function of one argument."""
    i = Axis("i", extent)
    kernels = tuple(
        Kernel(name, (i,), (), (store(name, op(name, at("x", (i, 1), dtype=dtype)), (i, 1)),))
        for name in UNARY
    )
    return program({"x": (extent,)}, {name: (extent,) for name in UNARY}, kernels, dtype=dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_of_one_argument(dtype):
    x = sweep(dtype)
    assert x.size >= (100_000 if dtype == "float32" else 20_000)
    native = check(functions(dtype, x.size), {"x": x})
    assert undefined_symbols(native.object_code) <= MEMORY_FUNCTIONS


@pytest.mark.parametrize("target", [*TARGETS[1:], None], ids=[*WIDTHS[1:], "scalar"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_in_other_registers(dtype, target):
    x = sweep(dtype)[::37]
    check(functions(dtype, x.size), {"x": x}, target=target, tiled=target is not None)


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_of_two_arguments(dtype):
    random = np.random.default_rng(5)
    with np.errstate(all="ignore"):
        x = np.exp2(random.uniform(-150, 128, 100_000 if dtype == "float32" else 20_000))
    y = random.uniform(-1, 1, x.size) * 150 / np.maximum(np.abs(np.log2(x)), 0.05)
    special = [0, -0.0, 1, -1, 2, -3, 0.5, np.inf, -np.inf, np.nan, 1e-45, 3e38]
    grid = np.meshgrid(special, special)
    x, y = (np.concatenate([a, g.ravel()]).astype(dtype) for a, g in zip((x, y), grid, strict=True))
    i = Axis("i", x.size)
    args = [at(name, (i, 1), dtype=dtype) for name in "xy"]
    kernels = tuple(Kernel(n, (i,), (), (store(n, op(n, *args), (i, 1)),)) for n in BINARY)
    source = program(
        {"x": x.shape, "y": y.shape}, dict.fromkeys(BINARY, x.shape), kernels, dtype=dtype
    )
    check(source, {"x": x, "y": y})


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_of_other_machines_call_no_library(dtype):
    from ostinato.codegen.llvm import emit_object
    from ostinato.codegen.module import module_text
    from ostinato.program.laid import lay_out
    from ostinato.schedule.pipeline import schedule

    scheduled = schedule(functions(dtype, 13), AARCH64.machine)
    blob = lay_out(scheduled.program.constants)
    text = module_text(scheduled.program, scheduled.arena, blob, AARCH64)
    assert undefined_symbols(emit_object(text, AARCH64)) <= MEMORY_FUNCTIONS


def numbers(dtype: str, size: int) -> np.ndarray:
    values = np.random.default_rng(size).integers(0, 100, size)
    return (values % 2 if dtype == "bool" else values).astype(numpy_dtype(dtype))


def changed(dtype: str, load):
    """Something that is no copy, where the dtype has such operations."""
    if dtype in HALVES:
        return Cast(op("neg", Cast(load, "float32")), dtype)
    return op("not", load) if dtype == "bool" else op("add", load, load)


# Floats of 8 bits are bytes to the code generator, which computes nothing with them.
COMPUTED = tuple(dtype for dtype in DTYPES if dtype not in BYTE_FLOATS)


@pytest.mark.parametrize("target", TARGETS, ids=WIDTHS)
@pytest.mark.parametrize("dtype", COMPUTED)
def test_tails_of_every_known_length(dtype, target):
    inputs, outputs, kernels, feeds = {}, {}, [], {}
    for n in LENGTHS:
        i = Axis("i", n)
        inputs[f"x{n}"] = outputs[f"y{n}"] = (dtype, (n,))
        feeds[f"x{n}"] = numbers(dtype, n)
        value = changed(dtype, at(f"x{n}", (i, 1), dtype=dtype))
        kernels.append(Kernel(f"k{n}", (i,), (), (store(f"y{n}", value, (i, 1)),)))
    check(mixed(inputs, outputs, tuple(kernels)), feeds, target=target)


@pytest.mark.parametrize("target", TARGETS, ids=WIDTHS)
@pytest.mark.parametrize("dtype", COMPUTED)
def test_tails_of_every_length_known_at_run_time(dtype, target):
    """Elements of this dtype beside wider and narrower ones, whose vectors hold other counts."""
    n = symbol("N")
    i = Axis("i", n)
    load = at("x", (i, 1), dtype=dtype)
    byte, wide = cast(load, "uint8"), cast(load, "float64")
    stores = (
        store("y", changed(dtype, load), (i, 1)),
        store("byte", byte, (i, 1)),
        store("wide", wide, (i, 1)),
    )
    outputs = {"y": (dtype, (n,)), "byte": ("uint8", (n,)), "wide": ("float64", (n,))}
    kernel = Kernel("k", (i,), (), stores)
    source = mixed({"x": (dtype, (n,))}, outputs, (kernel,), symbols=("N",))
    native = Native(source, target)
    for length in (0, *LENGTHS):
        x = numbers(dtype, length)
        got = native.run({"x": x})
        assert got["byte"].tolist() == x.astype("uint8").tolist()
        assert got["wide"].tolist() == x.astype("float64").tolist()
    check(source, {"x": numbers(dtype, 37)}, target=target)


@pytest.mark.parametrize("pair", [("int64", "uint8"), ("float64", "int16"), ("int8", "float64")])
@pytest.mark.parametrize("target", TARGETS, ids=WIDTHS)
def test_tails_between_dtypes_of_other_widths(pair, target):
    start, end = pair
    inputs, outputs, kernels, feeds = {}, {}, [], {}
    for n in LENGTHS:
        i = Axis("i", n)
        inputs[f"x{n}"], outputs[f"y{n}"] = (start, (n,)), (end, (n,))
        feeds[f"x{n}"] = numbers(start, n)
        value = Cast(at(f"x{n}", (i, 1), dtype=start), end)
        kernels.append(Kernel(f"k{n}", (i,), (), (store(f"y{n}", value, (i, 1)),)))
    check(mixed(inputs, outputs, tuple(kernels)), feeds, target=target)


@pytest.mark.parametrize("target", TARGETS, ids=WIDTHS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64", "bool", "float16"])
def test_strided_loads_and_stores(dtype, target):
    """Gathers and scatters, forwards, backwards and with a stride known at run time."""
    n, i, r = 21, Axis("i", 21), Axis("r", 21)
    s = symbol("S")
    kernels = (
        Kernel("every", (i,), (), (store("a", at("x", (i, 3), offset=1, dtype=dtype), (i, 1)),)),
        Kernel("back", (r,), (), (
            store("b", at("x", (r, -2), offset=40, dtype=dtype), (r, -1), offset=n - 1),)),
        Kernel("step", (Axis("j", n),), (), (
            store("c", at("z", (Axis("j", n), s), dtype=dtype), (Axis("j", n), 1)),)),
        Kernel("same", (Axis("k", n),), (), (
            store("d", at("x", offset=7, dtype=dtype), (Axis("k", n), 1)),)),
        *(
            Kernel(f"write{part}", (Axis("w", n),), (), (
                store("e", at("x", (Axis("w", n), 1), offset=part, dtype=dtype),
                      (Axis("w", n), 2), offset=part),))
            for part in (0, 1)
        ),
    )  # fmt: skip
    outputs = {name: (dtype, (n,)) for name in "abcd"} | {"e": (dtype, (2 * n,))}
    inputs = {"x": (dtype, (3 * n,)), "z": (dtype, (n, s))}
    source = mixed(inputs, outputs, kernels, symbols=("S",))
    for step in (1, 5):
        feeds = {"x": numbers(dtype, 3 * n), "z": numbers(dtype, step * n).reshape(n, step)}
        check(source, feeds, target=target)
        check(source, feeds, tiled=False)


@pytest.mark.parametrize("target", TARGETS, ids=WIDTHS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64", "bool", "float16"])
@pytest.mark.parametrize("stride", [1, 2, -1, 0])
def test_masked_loads_touch_nothing_where_the_mask_is_false(dtype, stride, target):
    """The addresses of masked lanes lie far outside, so that touching them would end the run."""
    n, far = 19, 1 << 40
    i = Axis("i", n)
    inside = op("lt", Index(i), constant(11, "int64"))
    fill = constant(1, dtype)
    near = {1: 0, 2: 0, -1: 10, 0: 3}[stride]
    near_load = Load(Access("x", near, ((i, stride),) if stride else ()), dtype, inside, fill)
    far_load = Load(Access("x", far, ((i, 1),)), dtype, constant(False, "bool"), fill)
    kernels = (
        Kernel("near", (i,), (), (store("y", near_load, (i, 1)),)),
        Kernel("far", (i,), (), (store("z", far_load, (i, 1)),)),
    )
    source = mixed({"x": (dtype, (21,))}, {"y": (dtype, (n,)), "z": (dtype, (n,))}, kernels)
    for tiled in (True, False):
        check(source, {"x": numbers(dtype, 21)}, target=target, tiled=tiled)


@pytest.mark.parametrize("target", TARGETS, ids=WIDTHS)
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "bfloat16"])
def test_computed_positions(dtype, target):
    """Rows, and single elements, that another input names."""
    i, j, width = Axis("i", 9), Axis("j", 13), 13
    row = at("places", (i, 1), dtype="int64")
    rows = Load(Access("x", 0, ((j, 1),)), dtype, None, None, ((row, width),))
    known = op("ge", row, constant(2, "int64"))
    some = Load(Access("x", 0, ((j, 1),)), dtype, known, constant(7, dtype), ((row, width),))
    k = Axis("k", 9)
    one = Load(Access("x", 3, ()), dtype, None, None, ((at("places", (k, 1), dtype="int64"), 2),))
    kernels = (
        Kernel("rows", (i, j), (), (store("y", rows, (i, width), (j, 1)),)),
        Kernel("some", (i, j), (), (store("z", some, (i, width), (j, 1)),)),
        Kernel("one", (k,), (), (store("w", one, (k, 1)),)),
    )
    inputs = {"x": (dtype, (5, width)), "places": ("int64", (9,))}
    outputs = {"y": (dtype, (9, width)), "z": (dtype, (9, width)), "w": (dtype, (9,))}
    places = np.array([4, 0, 0, 3, 2, 1, 4, 4, 2])
    feeds = {"x": numbers(dtype, 65).reshape(5, 13), "places": places}
    check(mixed(inputs, outputs, kernels), feeds, target=target)


@pytest.mark.parametrize("target", TARGETS, ids=WIDTHS)
def test_indices_and_sizes_as_values(target):
    n = symbol("N")
    i, j = Axis("i", n), Axis("j", 7)
    total = op("add", op("mul", Index(i), Extent(n * 7 + 2)), Index(j))
    kernel = Kernel("k", (i, j), (), (store("y", total, (i, 7), (j, 1)),))
    source = mixed({"x": ("float32", (n,))}, {"y": ("int64", (n, 7))}, (kernel,), symbols=("N",))
    for length in (0, 1, 3, 70):
        check(source, {"x": np.zeros(length, F)}, target=target)


def test_values_that_no_lane_changes_are_computed_once():
    i = Axis("i", 64)
    same = op("exp", at("s"))
    kernel = Kernel("k", (i,), (), (store("y", op("mul", same, at("x", (i, 1))), (i, 1)),))
    source = program({"x": (64,), "s": ()}, {"y": (64,)}, (kernel,))
    native = check(source, {"x": np.arange(64, dtype=F), "s": np.array(0.5, F)})
    assert "call float @llvm.fma.f32" in native.text
    assert "x float> @llvm.fma" not in native.text


@pytest.mark.parametrize(("registers", "lanes"), [(32, 32), (16, 32), (8, 16)])
def test_functions_of_a_tile_are_computed_side_by_side(registers, lanes):
    """Two vectors of 16 lanes, where there are registers for both."""
    i = Axis("i", 64)
    kernel = Kernel("k", (i,), (), (store("y", op("exp", at("x", (i, 1))), (i, 1)),))
    source = program({"x": (64,)}, {"y": (64,)}, (kernel,))
    machine = replace(AVX512, vector_registers=registers)
    native = check(
        source, {"x": np.arange(64, dtype=F)}, target=replace(host_target(), machine=machine)
    )
    assert set(re.findall(r"call <(\d+) x float> @llvm.fma", native.text)) == {str(lanes)}


def test_functions_are_called_for_all_rows_of_a_tile_before_the_next_ones():
    """Five rows are four and one: calls that wait for each other do not follow one another."""
    i, j, k = Axis("i", 5), Axis("j", 16), Axis("k", 3)
    reduce = Reduce((k,), "sum", at("x", (i, 3), (k, 1)), at("w", (k, 16), (j, 1)))
    value = op("tanh", op("exp", Reduced(0, "float32")))
    shape = Tile(j, 16, 1, row=i, rows=5)
    kernel = Kernel("k", (i, j), (reduce,), (store("y", value, (i, 16), (j, 1)),), tile=shape)
    source = program({"x": (5, 3), "w": (3, 16)}, {"y": (5, 16)}, (kernel,))
    feeds = {"x": np.arange(15, dtype=F).reshape(5, 3), "w": np.full((3, 16), 0.01, F)}
    native = check(source, feeds, target=replace(host_target(), machine=AVX512), tiled=False)
    called = re.findall(r"call <(\d+) x float> @function\.(\w+)", native.text)
    assert called == [("64", "exp"), ("16", "exp"), ("64", "tanh"), ("16", "tanh")]


def test_what_reductions_share_with_stores_is_right_behind_them():
    """A value computed inside of a reduction's loop does not reach the stores behind it."""
    i, k = Axis("i", 5), Axis("k", 3)
    shared = op("exp", at("x", (i, 1)))
    reduce = Reduce((k,), "sum", op("mul", shared, at("w", (k, 1))))
    value = op("add", Reduced(0, "float32"), shared)
    kernel = Kernel("k", (i,), (reduce,), (store("y", value, (i, 1)),))
    source = program({"x": (5,), "w": (3,)}, {"y": (5,)}, (kernel,))
    check(source, {"x": np.arange(5, dtype=F), "w": np.arange(3, dtype=F)})
