"""Every primitive on every dtype, in vectors of every width and alone: the interpreter's bits."""

from __future__ import annotations

from dataclasses import replace
from itertools import product as pairs

import numpy as np
import pytest

from ostinato.codegen.llvm import emit_object
from ostinato.codegen.primitives import literal
from ostinato.codegen.writer import Value
from ostinato.element_types import numpy_dtype
from ostinato.program.expr import (
    BYTE_FLOATS,
    COMPARISONS,
    DTYPES,
    FLOATS,
    HALVES,
    INTEGERS,
    ITEM_BYTES,
    PRIMITIVES,
    Axis,
    Cast,
    Op,
    Reduced,
    constant,
    op,
)
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.verify import ARITY, _dtypes_fit
from tests.codegen.test_module import (
    AARCH64,
    MEMORY_FUNCTIONS,
    TARGETS,
    WIDTHS,
    check,
    mixed,
    undefined_symbols,
)
from tests.program.programs import at, store

ARITHMETIC = (*FLOATS, *INTEGERS, "bool")
# None: one point at a time.
LANES = [*TARGETS, None]
LANE_NAMES = [*WIDTHS, "scalar"]


def edges(dtype: str) -> np.ndarray:
    """Values at which something special happens, and a few that are not special."""
    if dtype == "bool":
        return np.array([False, True])
    if dtype in INTEGERS:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        bits = 8 * ITEM_BYTES[dtype]
        numbers = {low, low + 1, high, high - 1, high // 2, 0, 1, 2, 3, 7, bits - 1, bits, bits + 1}
        if low < 0:
            numbers |= {-1, -2, -3, -7}
        return np.array(sorted(numbers), dtype)
    form = np.finfo(np.float32 if dtype in HALVES else dtype)
    values = [0, -0.0, 0.5, -0.5, 1, -1, 1.5, -1.5, 2.5, -2.5, 3, 1 / 3, 127.5, -128.5, 255.5,
              65504, 65520, 32768.5,
              2**31, -(2**31), 2**31 - 0.5, 2**63, -(2**63), 2**64, 1e10, np.inf,
              -np.inf, np.nan, form.max, -form.max, form.tiny, -form.tiny, form.smallest_subnormal,
              1 + form.eps, 1 - form.epsneg, 2**23 + 0.5, 3e-8, 6e-5]  # fmt: skip
    with np.errstate(all="ignore"):
        return np.array(values, np.float64).astype(numpy_dtype(dtype))


def operands(dtype: str, count: int) -> list[np.ndarray]:
    """All pairs of edges; for three operands besides a third that runs through them."""
    values = edges(dtype)
    left, right = (
        np.array(column, values.dtype) for column in zip(*pairs(values, values), strict=True)
    )
    third = np.resize(values[::-1], (7,)) if len(values) > 7 else values
    return [left, right, np.resize(third, left.shape)][:count]


def signatures(name: str) -> list[tuple[tuple[str, ...], str]]:
    """The legal dtypes of the operands and of the result."""
    found = []
    for dtype in ARITHMETIC:
        given = ["bool", dtype, dtype] if name == "select" else [dtype] * ARITY[name]
        for result in ARITHMETIC if name == "bitcast" else (dtype, "bool"):
            if _dtypes_fit(name, given, result) and (tuple(given), result) not in found:
                found.append((tuple(given), result))
    return found


def operations(dtype: str) -> list[tuple[str, tuple[str, ...], str]]:
    """(name, operands, result) of all primitives whose last operand is of this dtype."""
    return [
        (name, given, result)
        for name in sorted(PRIMITIVES)
        for given, result in signatures(name)
        if given[-1] == dtype
    ]


def table(dtype: str):
    """A program with one kernel for each primitive, and its feeds."""
    feeds = dict(zip("abc", operands(dtype, 3), strict=True))
    extent = feeds["a"].size
    feeds["p"] = np.resize(np.array([True, False, False]), extent)
    inputs = {name: (dtype if name != "p" else "bool", (extent,)) for name in feeds}
    outputs, kernels = {}, []
    for name, given, result in operations(dtype):
        i, place = Axis("i", extent), f"{name}.{result}"
        names = ("p", "a", "b") if name == "select" else "abc"[: len(given)]
        args = [at(n, (i, 1), dtype=d) for n, d in zip(names, given, strict=True)]
        outputs[place] = (result, (extent,))
        value = Op(name, tuple(args), result)
        kernels.append(Kernel(place, (i,), (), (store(place, value, (i, 1)),)))
    return mixed(inputs, outputs, tuple(kernels)), feeds


@pytest.mark.parametrize("target", LANES, ids=LANE_NAMES)
@pytest.mark.parametrize("dtype", ARITHMETIC)
def test_primitives(dtype, target):
    source, feeds = table(dtype)
    native = check(source, feeds, target=target, tiled=target is not None)
    assert undefined_symbols(native.object_code) <= MEMORY_FUNCTIONS


@pytest.mark.parametrize("target", TARGETS, ids=WIDTHS)
@pytest.mark.parametrize("mask", [None, 0x0F0F0F0F, 0x030F000F, 0x0F1F0F0F])
def test_sums_of_byte_products_with_and_without_the_instruction(mask, target):
    """Within a term of a sum, too, where bytes of few bits have instructions of their own."""
    i, j, k = Axis("i", 3), Axis("j", 37), Axis("k", 9)
    left, right = at("a", (i, 9), (k, 1), dtype="int32"), at("b", (k, 37), (j, 1), dtype="int32")
    sums = Reduce((k,), "sum", left, right)
    if mask is not None:
        few = op("and", right, constant(mask, "int32"))
        sums = Reduce((k,), "sum", op("dot", few, left, constant(7, "int32")))
    value = store("y", Reduced(0, "int32"), (i, 37), (j, 1))
    source = mixed(
        {"a": ("int32", (3, 9)), "b": ("int32", (9, 37))},
        {"y": ("int32", (3, 37))},
        (Kernel("k", (i, j), (sums,), (value,)),),
    )
    random = np.random.default_rng(0)
    feeds = {
        name: random.integers(-(2**31), 2**31, shape, np.int32)
        for name, shape in (("a", (3, 9)), ("b", (9, 37)))
    }
    for byte_dots in {"none", target.machine.byte_dots}:
        machine = replace(target.machine, byte_dots=byte_dots)
        native = check(source, feeds, target=replace(target, machine=machine))
        assert ("vpdpbusd" in native.text) is (byte_dots == "vnni")
        x86 = target.architecture == "x86_64"
        assert ("pmadd" in native.text) is (x86 and byte_dots == "none")


@pytest.mark.parametrize("count", [0, 1, 31, 32, 40])
@pytest.mark.parametrize("name", ["shl", "shr"])
def test_shifts_by_a_constant_are_one_instruction(name, count):
    i = Axis("i", 19)
    value = op(name, at("a", (i, 1), dtype="uint32"), constant(count, "uint32"))
    source = mixed(
        {"a": ("uint32", (19,))},
        {"y": ("uint32", (19,))},
        (Kernel("k", (i,), (), (store("y", value, (i, 1)),)),),
    )
    feeds = {"a": np.random.default_rng(0).integers(0, 2**32, 19, np.uint32)}
    assert (" select " in check(source, feeds).text) is (count >= 32)


def test_the_tables_hold_every_primitive():
    tested = {name for dtype in ARITHMETIC for name, _, _ in operations(dtype)}
    assert tested == PRIMITIVES
    assert {name for name, _, result in operations("float32") if result == "bool"} == COMPARISONS


@pytest.mark.parametrize("dtype", [d for d in INTEGERS if d.startswith("i")])
def test_division_that_traps_on_the_machine_does_not_here(dtype):
    low = np.iinfo(dtype).min
    i = Axis("i", 5)
    a, b = (at(name, (i, 1), dtype=dtype) for name in "ab")
    kernels = tuple(
        Kernel(name, (i,), (), (store(name, op(name, a, b), (i, 1)),)) for name in ("div", "mod")
    )
    shape = (dtype, (5,))
    feeds = {"a": np.array([low, low, 7, 0, -7], dtype), "b": np.array([-1, 0, 0, 0, -1], dtype)}
    source = mixed({"a": shape, "b": shape}, {"div": shape, "mod": shape}, kernels)
    for tiled in (True, False):
        got = check(source, feeds, tiled=tiled).run(feeds)
        assert got["div"].tolist() == [low, 0, 0, 0, 7]
        assert got["mod"].tolist() == [0, 0, 0, 0, 0]


# Floats of 8 bits are bytes to the code generator: operators convert them by arithmetic.
CAST = tuple(dtype for dtype in DTYPES if dtype not in BYTE_FLOATS)


def casts(source: str):
    values = edges(source)
    i = Axis("i", values.size)
    kernels = tuple(
        Kernel(f"to.{target}", (i,), (), (
            store(target, Cast(at("x", (i, 1), dtype=source), target), (i, 1)),
        ))
        for target in CAST
    )  # fmt: skip
    outputs = {target: (target, (values.size,)) for target in CAST}
    return mixed({"x": (source, (values.size,))}, outputs, kernels), {"x": values}


@pytest.mark.parametrize("target", LANES, ids=LANE_NAMES)
@pytest.mark.parametrize("dtype", CAST)
def test_casts_saturate(dtype, target):
    source, feeds = casts(dtype)
    native = check(source, feeds, target=target, tiled=target is not None)
    assert undefined_symbols(native.object_code) <= MEMORY_FUNCTIONS
    got = native.run(feeds)
    if dtype in FLOATS:
        x = feeds["x"]
        for name in INTEGERS:
            limits = np.iinfo(name)
            assert (got[name][x == np.inf] == limits.max).all()
            assert (got[name][x == -np.inf] == limits.min).all()
            assert (got[name][np.isnan(x)] == 0).all()


@pytest.mark.parametrize("half", HALVES)
def test_every_half_is_exact_in_float32_and_comes_back(half):
    every = np.arange(1 << 16, dtype=np.uint16).view(numpy_dtype(half))
    i = Axis("i", every.size)
    load = at("x", (i, 1), dtype=half)
    wide = Cast(load, "float32")
    kernels = (
        Kernel("widen", (i,), (), (store("wide", wide, (i, 1)),)),
        Kernel("round", (i,), (), (store("back", Cast(wide, half), (i, 1)),)),
    )
    outputs = {"wide": ("float32", (every.size,)), "back": (half, (every.size,))}
    source = mixed({"x": (half, (every.size,))}, outputs, kernels)
    got = check(source, {"x": every}).run({"x": every})
    numbers = ~np.isnan(every.astype(np.float32))
    assert (got["back"].view(np.uint16) == every.view(np.uint16))[numbers].all()


@pytest.mark.parametrize("half", HALVES)
def test_rounding_to_halves_is_to_nearest_even(half):
    """Halfway between neighbours, and one bit of float32 to either side."""
    every = np.arange(1 << 16, dtype=np.uint16).view(numpy_dtype(half)).astype(np.float32)
    every = np.sort(every[np.isfinite(every)])
    middle = ((every[:-1].astype(np.float64) + every[1:]) / 2).astype(np.float32)
    x = np.concatenate([np.nextafter(middle, np.float32(s)) for s in (-np.inf, np.inf)] + [middle])
    i = Axis("i", x.size)
    kernel = Kernel("k", (i,), (), (store("y", Cast(at("x", (i, 1)), half), (i, 1)),))
    check(mixed({"x": ("float32", x.shape)}, {"y": (half, x.shape)}, (kernel,)), {"x": x})


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint64", "bool"])
def test_other_machines_call_no_library(dtype):
    from ostinato.codegen.module import module_text
    from ostinato.program.laid import lay_out
    from ostinato.schedule.pipeline import schedule

    for source in (table(dtype)[0], casts(dtype)[0]):
        scheduled = schedule(source, AARCH64.machine)
        blob = lay_out(scheduled.program.constants)
        text = module_text(scheduled.program, scheduled.arena, blob, AARCH64)
        assert undefined_symbols(emit_object(text, AARCH64)) <= MEMORY_FUNCTIONS


def test_literals():
    assert literal(0.1, "float64").text == "0x3FB999999999999A"
    assert literal(float(np.float32(0.1)), "float32").text == "0x3FB99999A0000000"
    assert literal(float("nan"), "float32").text == "0x7FF8000000000000"
    assert literal(-0.0, "float32").text == "0x8000000000000000"
    assert literal(1.0, "float16").text == str(0x3C00)
    assert literal(1.0, "bfloat16").text == str(0x3F80)
    assert literal(True, "bool").text == "true"
    assert literal(-128, "int8") == Value("-128", "i8")
