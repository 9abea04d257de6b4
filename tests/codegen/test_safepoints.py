"""Compiled code asks whether it should stop, often enough, and stops."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest

from ostinato.codegen import kernel_functions, safepoints
from ostinato.codegen.safepoints import STOPPED
from ostinato.program import interpreter
from ostinato.program.expr import Axis, Reduced, constant, op
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.nodes import Carry, Loop, Program
from ostinato.sizes.dims import Size, symbol
from tests.codegen.test_kernels import matmul, random
from tests.codegen.test_module import Native, assert_same_bits
from tests.program.programs import at, program, store

N = symbol("N")
_ASK = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


class Asked:
    """A record for safepoints; the answer is to stop at question number `last`."""

    def __init__(self, last: int = 0) -> None:
        self.questions = 0

        def ask(record: int) -> int:
            self.questions += 1
            return int(self.questions == last)

        self._function = _ASK(ask)
        pointer = ctypes.cast(self._function, ctypes.c_void_p).value
        self._record = np.array([pointer], np.uint64)

    @property
    def address(self) -> int:
        return int(self._record.ctypes.data)


def product_of(rows: Size, depth: Size, columns: int) -> Program:
    kernel = matmul("k", rows, depth, columns, "x", "w", "y")
    shapes = {"x": (rows, depth), "w": (depth, columns)}
    symbols = ("N",) if N in (rows, depth) else ()
    return program(shapes, {"y": (rows, columns)}, (kernel,), symbols=symbols)


def sum_of_copies() -> Program:
    """y = x + x + .., N * M times: a single point, whose work no memory bounds."""
    axes = (Axis("i", N), Axis("j", symbol("M")))
    kernel = Kernel("k", (), (Reduce(axes, "sum", at("x")),), (store("y", Reduced(0, "float32")),))
    # The sizes are those of inputs without memory.
    return program(
        {"x": (), "n": (N, 0), "m": (symbol("M"), 0)}, {"y": ()}, (kernel,), symbols=("N", "M")
    )


def counting(steps: Size) -> Program:
    """y = x + 1 + 1 + .., in a loop of so many steps."""
    add = Kernel("k", (), (), (store("s2", op("add", at("s"), constant(1.0, "float32"))),))
    body = (
        Kernel("first", (), (), (store("s", at("x")),)),
        Loop(Axis("t", steps), (Carry("s", "s2"),), (add,)),
        Kernel("last", (), (), (store("y", at("s")),)),
    )
    return program({"x": (), "n": (N, 0)}, {"y": ()}, body, arena={"s": 1, "s2": 1}, symbols=("N",))


def sized(**sizes: int) -> dict[str, np.ndarray]:
    given = {name: np.empty((size, 0), np.float32) for name, size in sizes.items()}
    return {"x": np.ones((), np.float32), **given}


@pytest.fixture
def short_limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Safepoints that ask after little work; functions that are written with them are forgotten."""
    monkeypatch.setattr(safepoints, "LIMIT", 1 << 12)
    monkeypatch.setattr(safepoints, "GRAIN", 1 << 9)
    kernel_functions.function_text.cache_clear()
    yield
    kernel_functions.function_text.cache_clear()


@pytest.mark.parametrize("tiled", [True, False])
@pytest.mark.parametrize("sizes", [(90, 37), (N, 37), (9, N)], ids=["known", "rows", "depth"])
def test_safepoints_change_no_bit(
    sizes: tuple[Size, Size], tiled: bool, short_limits: None
) -> None:
    rows, depth = (100 if n == N else n for n in sizes)
    source, asked = product_of(*sizes, 21), Asked()
    feeds = {"x": random(rows, depth), "w": random(depth, 21)}
    native = Native(source, tiled=tiled)
    expected = interpreter.run(source, feeds)["y"]
    for record in (0, asked.address):
        code, outputs = native.call(feeds, record)
        assert code == 0
        assert_same_bits(outputs["y"], expected)
    assert asked.questions > 3


def test_what_is_short_has_no_safepoints() -> None:
    assert "@safepoint" not in Native(product_of(9, 37, 21)).text
    assert "@safepoint" not in Native(counting(20)).text


def test_a_run_of_small_sizes_does_not_ask() -> None:
    asked = Asked()
    feeds = {"x": random(3, 37), "w": random(37, 21)}
    assert Native(product_of(N, 37, 21)).call(feeds, asked.address)[0] == 0
    assert Native(counting(N)).call(sized(n=100), asked.address)[0] == 0
    assert asked.questions == 0


@pytest.mark.parametrize("tiled", [True, False])
def test_a_long_loop_and_a_long_reduction_stop(tiled: bool) -> None:
    asked = Asked(last=3)
    code, _ = Native(counting(N), tiled=tiled).call(sized(n=2**50), asked.address)
    assert (code, asked.questions) == (STOPPED, 3)
    asked = Asked(last=3)
    long = Native(sum_of_copies(), tiled=tiled)
    code, _ = long.call(sized(n=2**25, m=2**25), asked.address)
    assert (code, asked.questions) == (STOPPED, 3)
    assert long.run(sized(n=3, m=5))["y"] == 15
