from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ostinato
from ostinato.program.expr import Axis, Reduced, constant, op
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.nodes import Branch, Program
from ostinato.schedule import read_through as module
from ostinato.schedule.read_through import LEAST_ROWS, read_through
from ostinato.sizes.dims import Size, symbol
from tests.golden import parse
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import assert_same_results, check_unchanged

DEPTH, COLUMNS = 5, 20
N = symbol("N")


def scores(rows: Size, work: int = 1, swapped: bool = False) -> Program:
    """`y[i, j] = sum_k q[i, k] b[k, j]` of `b[k, j] = 2 a[j, k]`, doubled so many times.

    swapped: the rows of the sum are what is doubled, not what its lanes run along.
    """
    i, j, k = Axis("i", rows), Axis("j", COLUMNS), Axis("k", DEPTH)
    u, v = Axis("u", rows if swapped else COLUMNS), Axis("v", DEPTH)
    value = at("q" if swapped else "a", (u, DEPTH), (v, 1))
    for _ in range(work):
        value = op("mul", value, constant(2.0, "float32"))
    made = (
        store("b", value, (u, DEPTH), (v, 1))
        if swapped
        else store("b", value, (v, COLUMNS), (u, 1))
    )
    left = at("b" if swapped else "q", (i, DEPTH), (k, 1))
    right = at("a", (j, DEPTH), (k, 1)) if swapped else at("b", (k, COLUMNS), (j, 1))
    y = store("y", Reduced(0, "float32"), (i, COLUMNS), (j, 1))
    return program(
        {"q": (rows, DEPTH), "a": (COLUMNS, DEPTH)},
        {"y": (rows, COLUMNS)},
        (
            Kernel("scaled", (u, v), (), (made,)),
            Kernel("scores", (i, j), (Reduce((k,), "sum", left, right),), (y,)),
        ),
        arena={"b": DEPTH * (rows if swapped else COLUMNS)},
        symbols=() if isinstance(rows, int) else (str(rows),),
    )


def test_few_rows_compute_what_many_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_ROWS", 4)  # Within the extents that are run.
    source = scores(N)
    changed = read_through(source)
    decided, branch = changed.body
    assert isinstance(decided, Kernel) and isinstance(branch, Branch)
    assert branch.then == source.body
    (few,) = branch.orelse
    assert isinstance(few, Kernel) and {load.access.buffer for load in few.loads()} == {"q", "a"}
    assert_same_results(source, changed)


def test_a_branch_gets_the_kernel_on_the_way_that_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_ROWS", 4)
    source = scores(N)
    scaled, reader = source.body
    i, j = reader.axes
    other = Kernel(
        "other", (i, j), (), (store("y", constant(0.0, "float32"), (i, COLUMNS), (j, 1)),)
    )
    i8 = program({"c": (1,)}, {}, (), dtype="bool")
    source = replace(
        source,
        inputs=(*source.inputs, *i8.inputs),
        buffers={**source.buffers, **i8.buffers},
    ).with_body((scaled, Branch("c", (other,), (reader,))))
    (branch,) = read_through(source).body
    assert isinstance(branch, Branch) and branch.then == (other,)
    decided, inner = branch.orelse
    assert isinstance(decided, Kernel) and isinstance(inner, Branch) and len(inner.then) == 2


def test_ways_of_a_branch_that_read_it_have_kernels_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where another pass has called the kernel of fewer rows by the name of the other one."""
    monkeypatch.setattr(module, "LEAST_ROWS", 4)
    source = scores(N)
    scaled, reader = source.body
    flag = program({"c": (1,)}, {}, (), dtype="bool")
    source = replace(
        source,
        inputs=(*source.inputs, *flag.inputs),
        buffers={**source.buffers, **flag.buffers},
    ).with_body((scaled, Branch("c", (reader,), (replace(reader, name=f"{reader.name}.few"),))))
    changed = read_through(source)
    names = [kernel.name for kernel in changed.kernels()]
    assert len(names) == 8 and len({*names}) == 8


@pytest.mark.parametrize(
    "source",
    [
        scores(LEAST_ROWS - 1),
        scores(N, work=module.MOST_WORK),
        scores(N, swapped=True),
    ],
    ids=["known", "much work", "no lanes"],
)
def test_what_stays(source: Program) -> None:
    check_unchanged(read_through, source)


def test_a_value_with_another_reader_stays() -> None:
    source = scores(N)
    w = Axis("w", COLUMNS * DEPTH)
    again = Kernel("again", (w,), (), (store("z", at("b", (w, 1)), (w, 1)),))
    wider = program({}, {"z": (COLUMNS * DEPTH,)}, ())
    source = replace(
        source,
        outputs=(*source.outputs, *wider.outputs),
        buffers={**source.buffers, **wider.buffers},
    ).with_body((*source.body, again))
    check_unchanged(read_through, source)


@pytest.mark.parametrize("rows", [1, LEAST_ROWS - 1, LEAST_ROWS, 40])
def test_scaled_keys_have_the_bits_of_known_rows(rows: int) -> None:
    text = """g (float[2, {0}, 8] q, float[2, T, 8] k) => (float[2, {0}, T] y) {{
        t = Transpose <perm=[0, 2, 1]> (k)  w = Constant <value_float=0.3> ()
        s = Mul (t, w)  y = MatMul (q, s)
    }}"""
    random = np.random.default_rng(rows)
    feeds = {
        "q": random.standard_normal((2, rows, 8)).astype(np.float32),
        "k": random.standard_normal((2, 37, 8)).astype(np.float32),
    }
    results = [
        ostinato.InferenceSession(parse(text.format(size)), cache_dir=None).run(None, feeds)
        for size in ("N", rows)
    ]
    assert results[0][0].tobytes() == results[1][0].tobytes()


def test_a_kernel_that_writes_the_rest_is_no_reader() -> None:
    made = scores(N)
    writer, reader = made.body
    assert isinstance(reader, Kernel)
    k = Axis("k", DEPTH)
    rest = Kernel("rest", (k,), (), (store("b", constant(0.0, "float32"), (k, 1)),))
    check_unchanged(read_through, replace(made, body=(writer, rest)))
