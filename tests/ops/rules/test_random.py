"""The generator against its published vectors, and what numbers look like in bulk."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.errors import OptionError, RunError, UnsupportedError
from ostinato.ops.rules.random import philox
from ostinato.program.evaluate import evaluate
from ostinato.program.expr import constant
from tests.oracle import random as oracle

ONES = 0xFFFFFFFF
# Counter, key and words of philox4x32-10 in the file kat_vectors of Random123 1.14.
VECTORS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def session(source: str, opset: int = 22, **options: int) -> ostinato.InferenceSession:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {source}')
    return ostinato.InferenceSession(model, cache_dir=None, fallback=False, **options)


def run(source: str, opset: int = 22, **options: int) -> list[np.ndarray]:
    return session(source, opset, **options).run(None, {})


@pytest.mark.parametrize(("counter", "key", "words"), VECTORS)
def test_the_generator_is_philox(
    counter: tuple[int, ...], key: tuple[int, ...], words: tuple[int, ...]
) -> None:
    def leaf(node: object) -> np.ndarray:
        raise AssertionError(node)

    made = philox(
        tuple(constant(word, "uint64") for word in key),  # type: ignore[arg-type]
        tuple(constant(word, "uint64") for word in counter),  # type: ignore[arg-type]
    )
    assert tuple(int(evaluate(word, leaf)) for word in made) == words
    assert tuple(oracle.philox(np.array(counter), key).tolist()) == words


def distance(x: np.ndarray, share: np.ndarray) -> float:
    """The largest difference between the empirical distribution and `share` of sorted elements."""
    steps = np.arange(len(x) + 1) / len(x)
    return float(max((share - steps[:-1]).max(), (steps[1:] - share).max()))


COUNT = 200_000
# Kolmogorov: a true sample is farther away once in a thousand seeds, which are fixed here.
FARTHEST = 1.95 / math.sqrt(COUNT)


@pytest.mark.parametrize("dtype", [1, 11])
def test_uniform_numbers_are_uniform(dtype: int) -> None:
    source = f"g () => (t y) {{ y = RandomUniform<shape = [{COUNT}], dtype = {dtype}>() }}"
    (x,) = run(source.replace("(t y)", f"({'float' if dtype == 1 else 'double'}[{COUNT}] y)"))
    assert x.min() >= 0 and x.max() < 1
    assert distance(np.sort(x), np.sort(x)) < FARTHEST
    assert abs(x.mean(dtype="d") - 0.5) < 4 * math.sqrt(1 / 12 / COUNT)
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 4 / math.sqrt(COUNT)
    assert abs(np.corrcoef(x[: COUNT // 2], x[COUNT // 2 :])[0, 1]) < 4 / math.sqrt(COUNT / 2)


@pytest.mark.parametrize("kind", ["float", "double"])
def test_normal_numbers_are_normal(kind: str) -> None:
    dtype = {"float": 1, "double": 11}[kind]
    (x,) = run(f"""g () => ({kind}[{COUNT}] y) {{
        y = RandomNormal<shape = [{COUNT}], dtype = {dtype}, mean = 3.0, scale = 2.0>()
    }}""")
    z = np.sort((x.astype("d") - 3) / 2)
    share = np.array([(1 + math.erf(v / math.sqrt(2))) / 2 for v in z])
    assert distance(z, share) < FARTHEST
    assert abs(z.mean()) < 4 / math.sqrt(COUNT)
    assert abs(z.var() - 1) < 4 * math.sqrt(2 / COUNT)
    assert abs((z**4).mean() - 3) < 4 * math.sqrt(96 / COUNT)


def test_draws_with_probabilities() -> None:
    inputs, outputs = f"float[1, 4] logits, float[{COUNT}] p", f"int32[1, {COUNT}] y, float[N] b"
    made = session(f"""g ({inputs}) => ({outputs}) {{
        y = Multinomial<sample_size = {COUNT}>(logits)
        b = Bernoulli(p)
    }}""")
    shares = np.array([0.1, 0.0, 0.6, 0.3])
    with np.errstate(divide="ignore"):
        logits = np.log(shares).astype("f")[None] + 100
    y, b = made.run(None, {"logits": logits, "p": np.full(COUNT, 0.2, "f")})
    counts = np.bincount(y[0], minlength=4) / COUNT
    assert counts[1] == 0
    assert (abs(counts - shares) < 4 * np.sqrt(0.25 / COUNT)).all()
    assert abs(b.mean() - 0.2) < 4 * math.sqrt(0.16 / COUNT)
    edges = made.run(["b"], {"logits": logits, "p": np.resize(np.array([0, 1], "f"), COUNT)})[0]
    assert edges.sum() == COUNT // 2


def test_nodes_steps_and_seeds_are_independent() -> None:
    source = f"""g () => (float[2, {COUNT}] y, float[{COUNT}] a, float[{COUNT}] b) {{
        n = Constant<value_int = 2>()  yes = Constant<value_int = 1>()  c = Cast<to = 9>(yes)
        y = Loop(n, c) <body = l (int64 i, bool c1) => (bool c2, float[{COUNT}] o) {{
            c2 = Identity(c1)  o = RandomNormal<shape = [{COUNT}]>()
        }}>
        a = RandomNormal<shape = [{COUNT}]>()
        b = RandomNormal<shape = [{COUNT}], seed = 1.0>()
    }}"""
    made = session(source)
    y, a, b = made.run(None, {})
    assert all(map(np.array_equal, made.run(None, {}), [y, a, b]))
    others = run(source, seed=5)
    rows = [*y, a, b, *others[0], *others[1:]]
    related = np.corrcoef(rows) - np.eye(len(rows))
    assert abs(related).max() < 4.5 / math.sqrt(COUNT)


def test_a_seed_gives_the_same_numbers_in_any_model() -> None:
    one = run("g () => (float[4] y) { y = RandomNormal<shape = [4], seed = 7.0>() }")
    two = run("""g () => (float[2, 3] x, float[2, 3] y) {
        x = RandomUniform<shape = [2, 3]>()
        y = RandomNormal<shape = [2, 3], seed = 7.0>()
    }""")
    assert np.array_equal(one[0], two[1].reshape(-1)[:4])


def test_an_optimized_model_draws_the_same() -> None:
    source = """<ir_version: 10, opset_import: ["": 22]> g (float[9] x) => (float[9] y) {
        n = Constant<value_int = 1>()  yes = Constant<value_int = 1>()  c = Cast<to = 9>(yes)
        u = RandomNormalLike(x)
        v = Loop(n, c, u) <body = l (int64 i, bool c1, float[9] s) => (bool c2, float[9] o) {
            c2 = Identity(c1)  r = RandomNormalLike(s)  unused = RandomNormalLike(s)
            t = RandomUniformLike(r)  w = Mul(r, t)  o = Add(s, w)
        }>
        y = Identity(v)
    }"""
    model, x = onnx.parser.parse_model(source), np.zeros(9, "f")
    sessions = [
        ostinato.InferenceSession(m, cache_dir=None) for m in (model, ostinato.optimize(model))
    ]
    first, second = (one.run(None, {"x": x})[0] for one in sessions)
    assert np.array_equal(first, second)


def test_dropout_keeps_a_share_and_scales_it() -> None:
    made = session(
        "g (float[N] x, float r, bool t) => (float[N] y, bool[N] m) { y, m = Dropout(x, r, t) }"
    )
    x = np.arange(1, COUNT + 1, dtype="f")
    y, mask = made.run(None, {"x": x, "r": np.float32(0.25), "t": np.array(True)})
    assert abs(mask.mean() - 0.75) < 4 * math.sqrt(0.1875 / COUNT)
    assert np.array_equal(y, np.where(mask, np.float32(1 / np.float32(0.75)) * x, 0))
    y, mask = made.run(None, {"x": x, "r": np.float32(0.25), "t": np.array(False)})
    assert np.array_equal(y, x) and mask.all()
    with pytest.raises(RunError, match="ratio"):
        made.run(None, {"x": x, "r": np.float32(1), "t": np.array(True)})


@pytest.mark.parametrize("seed", [1.5, True, 2**64, -(2**63) - 1])
def test_a_seed_is_an_integer_of_64_bits(seed: object) -> None:
    with pytest.raises(OptionError, match="seed"):
        ostinato.Options(seed=seed)  # type: ignore[arg-type]


def test_no_reference_kernel_draws() -> None:
    source = """<ir_version: 10, opset_import: ["": 22]> g (string[2] s) => (string[2] y) {
        n = Constant<value_int = 3>()  yes = Constant<value_int = 1>()  c = Cast<to = 9>(yes)
        y = Loop(n, c, s) <body = b (int64 i, bool c1, string[2] t) => (bool c2, string[2] u) {
            c2 = Identity(c1)  r = RandomNormal<shape = [2]>()  v = Cast<to = 8>(r)
            u = StringConcat(t, v)
        }>
    }"""
    with pytest.raises(UnsupportedError, match="random numbers are drawn by compiled code"):
        ostinato.InferenceSession(onnx.parser.parse_model(source), cache_dir=None)


def test_a_branch_beside_strings_draws_with_the_seed_of_the_session() -> None:
    source = """<ir_version: 10, opset_import: ["": 22]> g (string[2] s, bool c) => (string[2] y) {
        y = If(c) <
            then_branch = t () => (string[2] u) { u = StringConcat(s, s) },
            else_branch = e () => (string[2] v) {
                r = RandomUniform<shape = [2]>()  v = Cast<to = 8>(r)
            }
        >
    }"""
    feeds = {"s": np.array(["a", "b"], object), "c": np.array(False)}
    for seed in (0, 3):
        made = ostinato.InferenceSession(onnx.parser.parse_model(source), cache_dir=None, seed=seed)
        (y,) = made.run(None, feeds)
        expected = oracle.uniform(oracle.words(2, None, session=seed))
        assert np.allclose([float(text) for text in y], expected, rtol=1e-5)
