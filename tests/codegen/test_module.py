"""Whole modules, and how the tests of this folder call compiled programs: between guard bytes."""

from __future__ import annotations

import ctypes
import dataclasses
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from ostinato.codegen import objects
from ostinato.codegen.kernel_functions import is_empty
from ostinato.codegen.llvm import emit_object
from ostinato.codegen.module import module_text
from ostinato.codegen.target import Target, host_target
from ostinato.element_types import numpy_dtype
from ostinato.machine.record import NEON
from ostinato.native import memory
from ostinato.program import interpreter
from ostinato.program.conditions import messages
from ostinato.program.expr import HALVES, Axis, Cast, constant, op
from ostinato.program.kernel import Kernel
from ostinato.program.laid import lay_out
from ostinato.program.nodes import (
    Branch,
    Buffer,
    Carry,
    Check,
    Interface,
    Loop,
    Program,
    Require,
    Stmt,
)
from ostinato.program.verify import verify
from ostinato.schedule.arena import plan
from ostinato.schedule.pipeline import schedule
from ostinato.sizes.dims import Size, product, symbol
from tests.program.programs import at, gru, program, store

Array = np.ndarray[Any, Any]
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
GUARD, MARGIN = 0xA5, 256


def targets() -> Iterator[Target]:
    """This machine, and this machine with the registers that others have."""
    host = host_target()
    yield host
    for width, registers in ((32, 16), (16, 32)):
        if (width, registers) != (host.machine.vector_bytes, host.machine.vector_registers):
            machine = dataclasses.replace(
                host.machine,
                vector_bytes=width,
                vector_registers=registers,
                lane_operands=width == NEON.vector_bytes,
                element_operands=False,
            )
            yield dataclasses.replace(host, machine=machine)


TARGETS = list(targets())
WIDTHS = [f"{target.machine.vector_bytes}-bytes" for target in TARGETS]
AARCH64 = Target("aarch64-unknown-linux-gnu", "generic", "+neon", NEON)


def mixed(
    inputs: Mapping[str, tuple[str, tuple[Size, ...]]],
    outputs: Mapping[str, tuple[str, tuple[Size, ...]]],
    body: tuple[Stmt, ...],
    arena: Mapping[str, tuple[str, Size]] | None = None,
    symbols: tuple[str, ...] = (),
    checks: tuple[Check, ...] = (),
) -> Program:
    """A program whose inputs and outputs are given by dtype and shape."""
    buffers = {}
    for kind, group in (("input", inputs), ("output", outputs)):
        for name, (dtype, shape) in group.items():
            buffers[name] = Buffer(name, dtype, product(shape), kind)
    for name, (dtype, size) in (arena or {}).items():
        buffers[name] = Buffer(name, dtype, size, "arena")
    interfaces = [
        tuple(Interface(name, name, dtype, shape) for name, (dtype, shape) in group.items())
        for group in (inputs, outputs)
    ]
    return Program(*interfaces, symbols, buffers, {}, body, checks)


class Guarded:
    """Memory between known bytes."""

    def __init__(self, size: int) -> None:
        self._block = memory.aligned_empty(size + 2 * MARGIN)
        self._block[:] = GUARD
        self.bytes = self._block[MARGIN : MARGIN + size]

    @property
    def address(self) -> int:
        return int(self.bytes.ctypes.data)

    def intact(self) -> bool:
        """Whether nothing was written around it."""
        margins = self._block[:MARGIN], self._block[-MARGIN:]
        return all(bool((margin == GUARD).all()) for margin in margins)


class Native:
    """A program compiled as it is (`tiled` false: one point at a time), or scheduled first."""

    def __init__(self, source: Program, target: Target | None = None, tiled: bool = True) -> None:
        target = target or host_target()
        verify(source)
        self.program, arena = source, plan(source)
        if tiled:
            scheduled = schedule(source, target.machine)
            self.program, arena = scheduled.program, scheduled.arena
            verify(self.program)
        blob = lay_out(self.program.constants)
        self.text = module_text(self.program, arena, blob, target)
        self.object_code = emit_object(self.text, target)
        self._constants = memory.aligned(blob.data)
        self._code = objects.load(self.object_code, ("entry", "layout"))

    def layout(self, symbols: Array) -> tuple[int, list[int]]:
        """What `layout` returns, and what it writes."""
        table = np.full(1 + sum(len(o.shape) for o in self.program.outputs), -1, np.int64)
        code = _FUNCTION(self._code.address("layout"))(symbols.ctypes.data, table.ctypes.data)
        return int(code), table.tolist()

    def call(self, inputs: Mapping[str, Array], record: int = 0) -> tuple[int, dict[str, Array]]:
        """What `entry` returns and the outputs, written between guard bytes.

        record: address of what safepoints ask; 0 for nobody.
        """
        bound = {
            str(size): extent
            for i in self.program.inputs
            for size, extent in zip(i.shape, inputs[i.name].shape, strict=True)
        }
        symbols = np.array([bound[name] for name in self.program.symbols] or [0], np.int64)
        code, (arena_bytes, *dims) = self.layout(symbols)
        assert code == 0
        given = [np.ascontiguousarray(inputs[i.name]) for i in self.program.inputs]
        arena, outputs, views = Guarded(arena_bytes), {}, {}
        for interface in self.program.outputs:
            shape, dims = tuple(dims[: len(interface.shape)]), dims[len(interface.shape) :]
            dtype = numpy_dtype(interface.dtype)
            outputs[interface.name] = Guarded(int(np.prod(shape)) * dtype.itemsize)
            views[interface.name] = outputs[interface.name].bytes.view(dtype).reshape(shape)
        addresses = [array.ctypes.data for array in given]
        addresses += [block.address for block in outputs.values()]
        addresses += [self._constants.ctypes.data, arena.address, record]
        table = np.array(addresses, np.uint64)
        code = _FUNCTION(self._code.address("entry"))(table.ctypes.data, symbols.ctypes.data)
        for name, block in (*outputs.items(), ("the arena", arena)):
            assert block.intact(), f"compiled code wrote outside of {name}"
        return int(code), views

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of a run without a failure."""
        code, outputs = self.call(inputs)
        assert code == 0
        return outputs


def assert_same_bits(got: Array, expected: Array, where: str = "") -> None:
    """Equal dtypes, shapes and bits; all NaNs are alike."""
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape), where
    floats = got.dtype.kind == "f" or got.dtype.name in HALVES
    a, b = (x.view(f"u{x.dtype.itemsize}") for x in (got, expected))
    same = a == b
    if floats:
        same |= np.isnan(got) & np.isnan(expected)
    if not same.all():
        first = int(np.argmin(same.reshape(-1)))
        raise AssertionError(
            f"{where}: {np.count_nonzero(~same)} of {same.size} differ, first at {first}: "
            f"{got.reshape(-1)[first]!r}, not {expected.reshape(-1)[first]!r}"
        )


def check(
    source: Program,
    inputs: Mapping[str, Array],
    *,
    target: Target | None = None,
    tiled: bool = True,
) -> Native:
    """Assert that compiled code gives the interpreter's bits and writes nowhere else."""
    native = Native(source, target, tiled)
    got, expected = native.run(inputs), interpreter.run(source, inputs)
    for name, array in expected.items():
        assert_same_bits(got[name], array, name)
    return native


def undefined_symbols(object_code: bytes) -> set[str]:
    """The names that an ELF object needs from elsewhere (System V ABI, chapter 4)."""
    if object_code[:6] != b"\x7fELF\x02\x01":
        pytest.skip("objects of this machine are not little-endian ELF64")
    (table,) = struct.unpack_from("<Q", object_code, 40)
    (count,) = struct.unpack_from("<H", object_code, 60)
    # name, type, flags, address, offset, size, link, info, alignment, entry size
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", object_code, table + 64 * i) for i in range(count)
    ]
    names = set()
    for section in sections:
        if section[1] != 2:  # SHT_SYMTAB
            continue
        strings = sections[section[6]][4]
        for at_byte in range(section[4], section[4] + section[5], 24):
            name, _, _, place = struct.unpack_from("<IBBH", object_code, at_byte)
            if place == 0 and name:
                end = object_code.index(b"\0", strings + name)
                names.add(object_code[strings + name : end].decode())
    return names


MEMORY_FUNCTIONS = {"memcpy", "memmove", "memset", "memcmp"}


def test_every_statement_of_a_program():
    steps = symbol("T")
    t, i = Axis("t", steps), Axis("i", 5)

    def copy(name, value, target):
        return Kernel(name, (i,), (), (store(target, value, (i, 1)),))

    one = constant(1.0, "float32")
    begin = copy("begin", at("x", (i, 1)), "h")
    step = copy("step", op("add", at("h", (i, 1)), one), "g")
    more = Kernel("more", (), (), (store("next", op("lt", at("h"), constant(9.0, "float32"))),))
    first = Kernel("first", (), (), (store("go", op("lt", at("x"), constant(9.0, "float32"))),))
    end = copy("end", at("h", (i, 1)), "y")
    negative = copy("negative", op("neg", at("h", (i, 1))), "y")
    source = mixed(
        {"x": ("float32", (5,)), "s": ("float32", (steps,)), "c": ("bool", ()), "r": ("bool", ())},
        {"y": ("float32", (5,))},
        (
            Require("r", "r must hold"),
            begin,
            first,
            Loop(t, (Carry("h", "g"), Carry("go", "next")), (step, more), "go"),
            Branch("c", (end,), (negative,)),
        ),
        {"h": ("float32", 5), "g": ("float32", 5), "go": ("bool", 1), "next": ("bool", 1)},
        ("T",),
    )
    native = Native(source)
    x = np.arange(5, dtype=np.float32)
    for count in (0, 1, 4, 5, 30):
        for c in (True, False):
            feeds = {"x": x, "s": np.zeros(count, np.float32), "c": np.array(c)}
            feeds["r"] = np.array(True)
            expected = interpreter.run(source, feeds)["y"]
            assert_same_bits(native.run(feeds)["y"], expected)
            assert expected[1] == (1 if c else -1) * (1 + min(count, 10))
    code, _ = native.call({**feeds, "r": np.array(False)})
    assert messages(source)[code - 1] == "r must hold"


def test_layout_checks_sizes_and_gives_the_shapes_of_outputs():
    n = symbol("N")
    i = Axis("i", n - 2)
    kernel = Kernel("k", (i,), (), (store("y", at("x", (i, 1)), (i, 1)),))
    checks = (Check(n - 2, "N is at least 2"), Check(100 - n, "N is at most 100"))
    native = Native(program({"x": (n,)}, {"y": (n - 2,)}, (kernel,), symbols=("N",), checks=checks))
    assert native.layout(np.array([12])) == (0, [0, 10])
    assert native.layout(np.array([1]))[0] == 1
    assert native.layout(np.array([101]))[0] == 2
    assert messages(native.program) == ["N is at least 2", "N is at most 100"]


@pytest.mark.parametrize("steps", [0, 1, 2, 7])
@pytest.mark.parametrize("target", TARGETS, ids=WIDTHS)
def test_a_recurrence(target, steps):
    random = np.random.default_rng(3)
    recurrent = random.standard_normal((3, 19, 19)).astype(np.float32)
    xw = random.standard_normal((steps, 3, 19)).astype(np.float32)
    h0 = random.standard_normal(19).astype(np.float32)
    check(gru(19, recurrent), {"xw": xw, "h0": h0}, target=target)


def test_constants_are_aligned():
    data = {name: np.arange(n, dtype=np.float32) for name, n in (("a", 3), ("b", 40), ("c", 1))}
    i = Axis("i", 3)
    kernel = Kernel(
        "k", (i,), (), (store("y", op("add", at("a", (i, 1)), at("b", (i, 1))), (i, 1)),)
    )
    source = program({}, {"y": (3,)}, (kernel,), data)
    blob = lay_out(source.constants)
    assert dict(blob.offsets) == {"a": 0, "b": 64, "c": 256}
    for name, array in data.items():
        stored = blob.data[blob.offsets[name] :][: array.nbytes].view(np.float32)
        np.testing.assert_array_equal(stored, array)
    check(source, {})


def test_kernels_without_points_are_left_out():
    empty, i = Axis("e", 0), Axis("i", 2)
    kernels = (
        Kernel("nothing", (empty, i), (), (store("y", at("x", (i, 1)), (empty, 2), (i, 1)),)),
        Kernel("something", (i,), (), (store("z", at("x", (i, 1)), (i, 1)),)),
    )
    source = program({"x": (2,)}, {"y": (0, 2), "z": (2,)}, kernels)
    assert [is_empty(kernel) for kernel in kernels] == [True, False]
    native = check(source, {"x": np.ones(2, np.float32)})
    assert "kernel.nothing" not in native.text and "kernel.something" in native.text


def test_messages_that_are_required_twice_have_one_code():
    require = Require("c", "must hold")
    kernel = Kernel("k", (), (), (store("y", Cast(at("c", dtype="bool"), "float32")),))
    source = mixed(
        {"c": ("bool", ())}, {"y": ("float32", ())}, (require, require, kernel),
        checks=(Check(1, "a size"),),
    )  # fmt: skip
    assert messages(source) == ["a size", "must hold"]
    assert Native(source).call({"c": np.array(False)})[0] == 2


def test_a_long_entry_is_written_for_sizes_near_their_use_and_not_optimised(monkeypatch):
    """Kernels of other sizes, in both ways of a branch and in a loop between them."""
    n, flag = symbol("n"), Buffer("flag", "bool", 1, "arena")

    def filled(name: str, size: Size, into: str = "y") -> Kernel:
        i = Axis(f"i.{name}", size)
        value = op("mul", at("x"), constant(float(len(name)), "float32"))
        return Kernel(name, (i,), (), (store(into, value, (i, 1)),))

    first = tuple(filled("b" * i, n * i + 1) for i in range(1, 9))
    second = tuple(filled("c" * i, n * i + 2) for i in range(1, 9))
    steps = (filled("step", n + 3, "z"), filled("other step", n + 4, "z"))
    which = Kernel("which", (), (), (store("flag", op("gt", at("x"), constant(0.0, "float32"))),))
    ways = (which, Branch("flag", first, second), Loop(Axis("t", n), (), steps))
    body = (*ways, *(filled("d" * i, n * i + 5) for i in range(1, 9)))
    source = mixed(
        {"x": ("float32", (n,))},
        {"y": ("float32", (8 * n + 5,)), "z": ("float32", (n + 4,))},
        body,
        symbols=("n",),
    )
    source = dataclasses.replace(source, buffers=dict(source.buffers) | {"flag": flag})
    monkeypatch.setattr("ostinato.codegen.entry._LONG", 100)
    for size, sign in ((3, 1), (4, -1)):
        x = sign * np.arange(1, size + 1, dtype=np.float32)
        native = check(source, {"x": x})
        assert "%symbols) nounwind noinline optnone {" in native.text.partition("@entry")[2]
    ahead = module_text(source, plan(source), lay_out({}), host_target(), is_watched=False)
    assert "@entry(ptr noalias %buffers, ptr noalias %symbols) nounwind {" in ahead
