"""Libraries of models whose `If`s give results of different ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ostinato
from ostinato.aot.branches import SIZES, with_equal_ranks
from ostinato.aot.library import compile_library
from ostinato.errors import UnsupportedError
from ostinato.model.load import load_model
from ostinato.options import Options
from tests.aot import models
from tests.aot.caller import Caller, linked, needs_compiler


def chosen(condition: str, value: str, result: str, mark: str) -> str:
    """An If that gives a value as it is, or the sum of its rows."""
    return f"""
    {result} = If ({condition}) <
      then_branch = a{mark} () => (a{mark}) {{ a{mark} = Neg ({value}) }},
      else_branch = b{mark} () => (b{mark}) {{
        axis{mark} = Constant <value = int64[1] {{0}}> ()
        b{mark} = ReduceSum <keepdims = 0> ({value}, axis{mark}) }}>"""


HEAD = "g (float[N, 3] x, bool c, bool d) => "
CASES = {
    "an output": f"{HEAD} (float[] y) {{ {chosen('c', 'x', 'y', '1')} }}",
    "read by what is added": f"""{HEAD} (float[N, 3] z) {{ {chosen("c", "x", "y", "1")}
        z = Add (x, y) }}""",
    "an output that is read": f"""{HEAD} (float[N, 3] z, float[] y, float[N, 3] w) {{
        {chosen("c", "x", "y", "1")}
        w = Tanh (x)
        z = Mul (w, y) }}""",
    "read in a loop": f"""{HEAD} (float[N, 3] z) {{ {chosen("c", "x", "y", "1")}
        count = Constant <value = int64 {{3}}> ()
        z = Loop (count, , x) <body = loop (int64 i, bool going, float[N, 3] s)
          => (bool still, float[N, 3] t) {{
            still = Identity (going)
            t = Add (s, y) }}> }}""",
    "one after the other": f"""{HEAD} (float[N, 3] v, float[] z) {{
        {chosen("c", "x", "y", "1")}
        u = Add (x, y)
        {chosen("d", "u", "z", "2")}
        v = Sub (u, z) }}""",
    "one that reads the other": f"""{HEAD} (float[] z) {{
        {chosen("c", "x", "y", "1")}
        w = Mul (y, y)
        {chosen("d", "w", "z", "2")} }}""",
}


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_results_have_the_bits_and_sizes_of_the_session(tmp_path: Path, name: str) -> None:
    model = models.parsed(CASES[name])
    library = compile_library(model, Options(), "m", name)
    caller = Caller(library, linked(library, tmp_path), {"N": 4})
    session = ostinato.InferenceSession(model)
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    for code in range(4):
        feeds = {"x": x, "c": np.array(code % 2 == 0), "d": np.array(code > 1)}
        made = caller.run([feeds[tensor.name] for tensor in library.interface.inputs])
        found = dict(zip([t.name for t in library.interface.outputs], made, strict=True))
        names = [output.name for output in session.get_outputs()]
        for output, expected in zip(names, session.run(None, feeds), strict=True):
            sizes = list(found[output].shape)
            if SIZES + output in found:
                sizes = found[SIZES + output].tolist()
                assert found[f"shape of {output}"].tolist() == [expected.size]
            assert sizes[: expected.ndim] == list(expected.shape)
            assert set(sizes[expected.ndim :]) <= {-1}
            assert found[output].reshape(-1)[: expected.size].tobytes() == expected.tobytes()
    caller.close()


def test_models_without_such_results_stay() -> None:
    text = f"{HEAD} (float[N, 3] y) {{ y = If (c) <then_branch = a () => (s) {{ s = Neg (x) }}, "
    text += "else_branch = b () => (t) { t = Tanh (x) }> }"
    assert with_equal_ranks(load_model(models.parsed(text))) is None


def in_a_row(count: int) -> str:
    """So many Ifs, each of which reads the one before."""
    ifs = [chosen("c", f"y{i}" if i else "x", f"y{i + 1}", str(i)) for i in range(count)]
    head = "g (float[N, 2, 2, 2, 3] x, bool c) => "
    return f"{head} (float[] y{count}) {{ {' '.join(ifs)} }}"


def test_four_in_a_row_are_the_most() -> None:
    assert with_equal_ranks(load_model(models.parsed(in_a_row(4)))) is not None
    with pytest.raises(UnsupportedError, match=r"\(If\): .* many of these follow from each other"):
        compile_library(models.parsed(in_a_row(5)), Options(), "m", "m")


RANDOM = f"""{HEAD} (float[] z) {{ {chosen("c", "x", "y", "1")}
    z = RandomNormalLike (y) }}"""


def test_random_numbers_behind_it_are_refused() -> None:
    model = models.parsed(RANDOM)
    with pytest.raises(UnsupportedError, match=r"node 'y' \(If\): .* random numbers follow"):
        compile_library(model, Options(), "m", "m")


def test_a_branch_that_likely_sizes_exclude_is_left_out() -> None:
    """The library has the likely program then, and what follows stays as it is."""
    model = models.parsed("""g (float[N, 3] x) => (float[] z) {
        shape = Shape <end = 1> (x)
        one = Constant <value = int64[1] {1}> ()
        equal = Equal (shape, one)
        c = Squeeze (equal)
        zero = Constant <value = int64[1] {0}> ()
        y = If (c) <then_branch = a () => (s) { s = Squeeze (x, zero) },
          else_branch = b () => (t) { t = Identity (x) }>
        r = RandomNormalLike (x)
        z = Add (y, r) }""")
    interface = compile_library(model, Options(), "m", "m").interface
    assert len(interface.guards) == 1
    assert [tensor.described for tensor in interface.outputs] == ["float32[N, 3]"]
