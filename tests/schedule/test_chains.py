from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from ostinato.machine.record import Machine
from ostinato.program.expr import Axis, Load, Reduced, op, walk
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.laid import elements
from ostinato.program.nodes import Loop, Program
from ostinato.schedule.chains import chains_to_axes as chains_to_axes_for
from ostinato.sizes.dims import symbol
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import assert_same_results, check, check_unchanged

chains_to_axes = partial(chains_to_axes_for, machine=Machine(16, 32))
N = symbol("N")


def sums(
    terms, points: int = 4, combine: str = "sum", chains: int = 4, apart: bool = True
) -> Program:
    """Of the elements of each column of a matrix, or each row, a result and its double."""
    i, k = Axis("i", points), Axis("k", terms)
    element = at("x", (i, 1), (k, points)) if apart else at("x", (i, terms), (k, 1))
    factor = element if combine == "dot" else None
    reduce = Reduce((k,), "sum" if combine == "dot" else combine, element, factor, chains)
    result = Reduced(0, "float32")
    stores = (store("y", result, (i, 1)), store("z", op("add", result, result), (i, 1)))
    return program(
        {"x": (terms, points) if apart else (points, terms)},
        {"y": (points,), "z": (points,)},
        (Kernel("total", (i,), (reduce,), stores),),
        symbols=() if isinstance(terms, int) else ("N",),
    )


def test_chains_become_an_axis():
    check(
        chains_to_axes,
        sums(10, chains=2),
        """
        kernel total [i < 4]
          r0 = sum k < 10 in 2 chains: x[i + 4*k]
          y[i] = r0
          z[i] = r0 + r0
        """,
        """
        arena total.chains0: float32[8]
        kernel total.chains0.begin [kchain < 2, i < 4]
          total.chains0[4*kchain + i] = 0.0
        loop kstep < 5
          kernel total.chains0.step [kchain < 2, i < 4]
            total.chains0[4*kchain + i] = total.chains0[4*kchain + i] + x[i + 8*kstep + 4*kchain]
        kernel total [i < 4]
          v0 = total.chains0[i] + total.chains0[i + 4]
          y[i] = v0
          z[i] = v0 + v0
        """,
    )


@pytest.mark.parametrize("combine", ["sum", "max", "min", "prod", "larger", "dot"])
@pytest.mark.parametrize("terms", [3, 8, 21, N], ids=str)
def test_sums_keep_their_order(terms, combine):
    source = sums(terms, 5, combine, chains=8)
    changed = chains_to_axes(source)
    stored = terms not in (3, 8)
    assert any(isinstance(s, Loop) for s in changed.body) == stored
    assert_same_results(source, changed)


@pytest.mark.parametrize(
    "source",
    [sums(10, apart=False), sums(10, points=3), sums(10, chains=1)],
    ids=["neighbours", "few points", "no chains"],
)
def test_what_finds_neighbours_stays(source):
    check_unchanged(chains_to_axes, source)


def test_constants_are_turned():
    """Weights `[points, terms]` of a sum over rows: points lie apart in them."""
    i, k = Axis("i", 8), Axis("k", 3)
    weights = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
    value = op("mul", at("x", (i, 1), (k, 8)), at("w", (i, 3), (k, 1)))
    reduce = Reduce((k,), "sum", value, None, 4)
    kernel = Kernel("total", (i,), (reduce,), (store("y", Reduced(0, "float32"), (i, 1)),))
    source = program({"x": (3, 8)}, {"y": (8,)}, (kernel,), {"w": weights})
    changed = chains_to_axes(source)
    turned = elements(changed.constants["total.turned0"])
    assert (turned.reshape(3, 8) == weights.T).all()
    (total,) = changed.body
    assert isinstance(total, Kernel)
    assert {load.access.stride(i) for load in total.loads()} == {1}
    assert_same_results(source, changed)


def test_partial_results_are_neighbours_where_what_is_added_is():
    i, j, k = Axis("i", 8), Axis("j", 3), Axis("k", 10)
    reduce = Reduce((k,), "sum", at("x", (i, 1), (k, 8)), at("w", (j, 1), (k, 3)), 2)
    result = store("y", Reduced(0, "float32"), (i, 3), (j, 1))
    kernel = Kernel("total", (i, j), (reduce,), (result,))
    source = program({"x": (10, 8), "w": (10, 3)}, {"y": (8, 3)}, (kernel,))
    changed = chains_to_axes(source)
    assert_same_results(source, changed)
    begin, step, end = changed.kernels()
    assert [axis.name for axis in step.axes] == ["j", "kchain", "i"]
    partial = [kernel.stores[0].access for kernel in (begin, step)]
    partial += [load.access for load in walk(end.stores[0].value) if isinstance(load, Load)]
    assert {access.stride(i) for access in partial} == {1}
