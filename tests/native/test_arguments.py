from __future__ import annotations

import weakref

import numpy as np
import pytest

from ostinato.codegen.artifact import UNKNOWN_RANK, Argument
from ostinato.element_types import numpy_dtype
from ostinato.errors import InputError
from ostinato.native import arguments as module


def test_arguments_print_as_users_write_them() -> None:
    assert module.describe(Argument("x", "float32", ("T", 1, 64))) == "float32[T, 1, 64]"
    assert module.describe(Argument("x", "int64", ())) == "int64[]"
    assert module.describe(Argument("x", "seq(tensor(float))", ())) == "seq(tensor(float))"
    assert module.describe_array(np.zeros((3, 1))) == "float64[3, 1]"


def test_arguments_that_were_described_are_not_kept() -> None:
    argument = Argument("x", "float32", ("T",))
    module.describe(argument)
    kept = weakref.ref(argument)
    del argument
    assert kept() is None


def test_named_dimensions_are_bound_and_unknown_ranks_skipped() -> None:
    x = Argument("x", "float32", ("T", 2, "B"))
    h = Argument("h", "float32", ("B",))
    anything = Argument("u", "float32", UNKNOWN_RANK)
    sizes = module.bind_shapes([x, anything, h], [(5, 2, 3), (1, 2, 3, 4), (3,)])
    assert sizes == {"T": 5, "B": 3}
    with pytest.raises(InputError, match=r"input 'h'.*float32\[4\], but B is 3 in input 'x'"):
        module.bind_shapes([x, h], [(5, 2, 3), (4,)])


def test_one_input_may_use_a_dimension_twice() -> None:
    square = Argument("x", "float32", ("N", "N"))
    assert module.bind_shapes([square], [(3, 3)]) == {"N": 3}
    with pytest.raises(InputError, match="but N is 3 in input 'x'"):
        module.bind_shapes([square], [(3, 4)])


def test_arrays_are_not_copied() -> None:
    x = np.zeros((4, 2), "f")
    argument = Argument("x", "float32", ("T", 2))
    assert module.as_input(argument, x) is x
    assert np.shares_memory(module.as_input(argument, x[::2]), x)
    assert module.in_place(x) is x
    assert not np.shares_memory(module.in_place(x[::2]), x)


def test_scalars_keep_rank_zero() -> None:
    argument = Argument("x", "float32", ())
    for value in (1.5, np.float32(1.5), np.array(1.5, "f")):
        assert module.in_place(module.as_input(argument, value)).shape == ()


def test_arrays_in_sequences_and_optionals_are_checked() -> None:
    pair = Argument("s", "seq(tensor(float))", ())
    x = np.zeros(2, "f")
    assert module.as_input(pair, (x, [1]))[0] is x
    assert module.as_input(pair, [1.5])[0].dtype == np.float32
    for wrong in ([np.zeros(2)], [x, "text"], x, None, [[x, None]]):
        with pytest.raises(InputError, match="input 's'"):
            module.as_input(pair, wrong)
    maybe = Argument("o", "optional(seq(tensor(string)))", ())
    assert module.as_input(maybe, None) is None
    assert module.as_input(maybe, [["a", "b"]])[0].tolist() == ["a", "b"]
    small = Argument("f", "optional(tensor(float8e8m0))", ())
    dtype = numpy_dtype("float8_e8m0fnu")
    assert module.as_input(small, np.ones(1, dtype)).dtype == dtype
