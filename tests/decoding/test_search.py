from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import ostinato
from ostinato import decoding
from ostinato.errors import InputError, OptionError
from ostinato.graph import inferred_sizes
from ostinato.model.load import load_model
from ostinato.optimization import run_all_passes

DECODER = Path(__file__).parents[1] / "models" / "cached_decoder.script.onnx"
STATES = {"keys": "next_keys", "values": "next_values"}
PROMPT = np.array([[1, 2, 3], [4, 5, 6]])
NEW = 9

Step = Callable[[np.ndarray], np.ndarray]
"""Tokens of all rows so far -> logits of the next token of each row."""


@cache
def decoder() -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(DECODER)


def whole(tokens: np.ndarray) -> np.ndarray:
    """The logits after whole sequences: no cache is carried."""
    empty = np.zeros((len(tokens), 2, 0, 8), np.float32)
    feeds = {"token": tokens, "keys": empty, "values": empty}
    return decoder().run(["logits"], feeds)[0][:, -1]


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def generate(step: Step, prompt: np.ndarray, choose: Any, end: int | None) -> np.ndarray:
    tokens, done = prompt, np.zeros(len(prompt), bool)
    for number in range(NEW):
        chosen = choose(step(tokens), number)
        if end is not None:
            chosen = np.where(done, end, chosen)
            done |= chosen == end
        tokens = np.concatenate([tokens, chosen[:, None]], 1)
        if done.all():
            break
    return tokens[:, prompt.shape[1] :]


def sampler(uniform: np.ndarray, temperature: float, top_k: int, top_p: float) -> Any:
    def choose(logits: np.ndarray, number: int) -> np.ndarray:
        chosen = []
        for row, draw in zip(logits / temperature, uniform[:, number], strict=True):
            order = np.argsort(-row, kind="stable")[:top_k]
            likely = np.exp(log_softmax(row[order]))
            before = np.cumsum(likely) - likely
            likely = np.where(before < top_p, likely, 0)
            chosen.append(order[np.searchsorted(np.cumsum(likely), (1 - draw) * likely.sum())])
        return np.array(chosen)

    return choose


def search_beams(
    step: Step, prompt: np.ndarray, beams: int, end: int | None, penalty: float
) -> tuple[list[list[int]], list[float]]:
    """Beams of one row, in plain Python."""
    found = [((), 0.0, False)]
    for _ in range(NEW):
        candidates = []
        for tokens, score, done in found:
            if done:
                candidates.append(((*tokens, end), score, True))
                continue
            logs = log_softmax(step(np.array([[*prompt, *tokens]]))[0])
            candidates += [
                ((*tokens, token), score + log, token == end) for token, log in enumerate(logs)
            ]
        found = sorted(candidates, key=lambda one: -one[1])[:beams]
        if all(done for _, _, done in found):
            break
    length = {t: t.index(end) + 1 if end in t else len(t) for t, _, _ in found}
    ordered = sorted(((s / length[t] ** penalty, t) for t, s, _ in found), reverse=True)
    return [list(t) for _, t in ordered], [s for s, _ in ordered]


def run(model: onnx.ModelProto, **feeds: Any) -> list[np.ndarray]:
    """The outputs, native, and equal to those of onnxruntime."""
    arrays = {name: np.asarray(value) for name, value in feeds.items()}
    session = ostinato.InferenceSession(model, fallback=False)
    results = session.run(None, arrays)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    other = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, arrays)
    for ours, theirs in zip(results, other, strict=True):
        if ours.dtype.kind == "f":
            np.testing.assert_allclose(ours, theirs, rtol=1e-5)
        else:
            np.testing.assert_array_equal(ours, theirs)
    return results


def search(**options: Any) -> onnx.ModelProto:
    return decoding.loop(DECODER, states=STATES, **options)


@pytest.mark.parametrize(("end", "prefill"), [(None, True), (4, False), (19, None)])
def test_greedy_is_the_most_likely_token_of_the_whole_sequence(
    end: int | None, prefill: bool | None
) -> None:
    (tokens,) = run(search(end_token=end, prefill=prefill), prompt=PROMPT, max_tokens=NEW)
    expected = generate(whole, PROMPT, lambda logits, _: logits.argmax(1), end)
    np.testing.assert_array_equal(tokens, expected)


@pytest.mark.parametrize(("weights", "prefill"), [("int8", False), ("int4", False), ("bf16", True)])
def test_a_step_of_narrow_weights(weights: str, prefill: bool) -> None:
    step = ostinato.quantize(str(DECODER), weights)
    model = decoding.loop(step, states=STATES, prefill=prefill)
    (loop,) = (node for node in model.graph.node if node.op_type == "Loop")
    assert not any(n.op_type == "DequantizeLinear" for n in loop.attribute[0].g.node)
    (tokens,) = run(model, prompt=PROMPT, max_tokens=NEW)
    around = ostinato.quantize(search(prefill=prefill), weights)
    np.testing.assert_array_equal(run(around, prompt=PROMPT, max_tokens=NEW)[0], tokens)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.5},
        {"top_k": 3},
        {"top_p": 0.6},
        {"top_k": 1000, "top_p": 0.9, "temperature": 1.5, "end_token": 4},
    ],
    ids=str,
)
def test_samples_follow_the_numbers_that_are_given(options: dict[str, Any]) -> None:
    uniform = np.random.default_rng(1).random((2, NEW), np.float32)
    model = search(method="sample", prefill=False, **options)
    (tokens,) = run(model, prompt=PROMPT, max_tokens=NEW, uniform=uniform)
    top = options.get("top_k", 20), options.get("top_p", 2.0)
    choose = sampler(uniform, options.get("temperature", 1.0), *top)
    if "top_k" not in options and "top_p" not in options:
        # Without an order of likelihood, tokens stand in that of their numbers.
        def choose(logits: np.ndarray, number: int) -> np.ndarray:
            sums = np.exp(log_softmax(logits / options.get("temperature", 1.0))).cumsum(1)
            levels = (1 - uniform[:, number]) * sums[:, -1]
            return np.array([np.searchsorted(s, n) for s, n in zip(sums, levels, strict=True)])

    np.testing.assert_array_equal(tokens, generate(whole, PROMPT, choose, options.get("end_token")))


def test_passes_need_no_sizes_of_states_that_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """To infer them took more than half of the time of all passes."""
    asked: list[object] = []
    monkeypatch.setattr(inferred_sizes, "_proven", lambda *given: asked.append(given) or {})
    run_all_passes(load_model(search(method="greedy", prefill=True)))
    assert not asked


@pytest.mark.parametrize("prefill", [False, True])
@pytest.mark.parametrize("method", ["greedy", "sample", "beam"])
def test_no_tokens_may_be_wanted(method: Any, prefill: bool) -> None:
    session = ostinato.InferenceSession(search(method=method, prefill=prefill))
    feeds = {"prompt": PROMPT, "max_tokens": np.array(0)}
    if method == "sample":
        feeds["uniform"] = np.zeros((2, 0), np.float32)
    shape = (2, 4, 0) if method == "beam" else (2, 0)
    assert session.run(None, feeds)[0].shape == shape


def test_a_seed_draws_the_same_numbers_every_time() -> None:
    model = search(method="sample", seed=3, max_tokens=30, prefill=False)
    session = ostinato.InferenceSession(model)
    (once,), (again,) = (session.run(None, {"prompt": PROMPT}) for _ in range(2))
    np.testing.assert_array_equal(once, again)
    assert once.shape == (2, 30) and len(np.unique(once)) > 5


@pytest.mark.parametrize(("beams", "end", "penalty"), [(1, None, 1.0), (3, None, 0.0), (4, 4, 1.5)])
def test_beams_are_the_best_sequences(beams: int, end: int | None, penalty: float) -> None:
    prefill = end is not None
    model = search(
        method="beam", beams=beams, end_token=end, length_penalty=penalty, prefill=prefill
    )
    tokens, scores = run(model, prompt=PROMPT, max_tokens=NEW)
    for row, prompt in enumerate(PROMPT):
        expected, best = search_beams(whole, prompt, beams, end, penalty)
        length = len(expected[0])
        np.testing.assert_array_equal(tokens[row][:, :length], expected)
        assert (tokens[row][:, length:] == end).all()
        np.testing.assert_allclose(scores[row], best, rtol=1e-5)


def text_model(source: str, **weights: np.ndarray) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 17]> {source}')
    for name, array in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


RANDOM = np.random.default_rng(5)
WEIGHTS = {
    "E": RANDOM.standard_normal((11, 6)).astype(np.float32),
    "R": RANDOM.standard_normal((6, 6)).astype(np.float32),
    "O": RANDOM.standard_normal((6, 11)).astype(np.float32),
}


@pytest.mark.parametrize(
    ("token", "reading"),
    [("int32 t", "u = Unsqueeze(t, z)"), ("int64[1] t", "u = Identity(t)")],
)
def test_a_recurrent_step_of_one_row(token: str, reading: str) -> None:
    step = text_model(
        f"""g ({token}, float[1, 6] h) => (float[11] y, float[1, 6] n) {{
            z = Constant<value_ints = [0]>()  {reading}
            x = Gather(E, u)  r = MatMul(h, R)  s = Add(x, r)  n = Tanh(s)
            o = MatMul(n, O)  y = Squeeze(o, z)
        }}""",
        **WEIGHTS,
    )
    (tokens,) = run(decoding.loop(step, states={"h": "n"}, max_tokens=5), prompt=[[3, 7]])
    h, expected = np.zeros(6), []
    for number in range(6):
        token_now = [3, 7, *expected][number]
        h = np.tanh(WEIGHTS["E"][token_now] + h @ WEIGHTS["R"])
        if number:
            expected.append(int((h @ WEIGHTS["O"]).argmax()))
    assert tokens.tolist() == [expected]


POSITIONS = """
    g (int64[N, S] t, int64[AT] at, int64[N, L] ones, float[N, 6] extra, float[N, P, 6] c)
        => (float[N, S, 11] y, float[N, Q, 6] d) {
        one = Constant<value_ints = [1]>()  two = Constant<value_ints = [2]>()
        x = Gather(E, t)  PLACES  f = Cast<to = 1>(places)  g = Unsqueeze(f, two)  h = Add(x, g)
        d = Concat<axis = 1>(c, h)  w = Cast<to = 1>(ones)
        v = Unsqueeze(w, two)  k = Mul(d, v)  m = CumSum(k, one)
        far = Constant<value_ints = [9223372036854775807]>()
        n = Shape<start = 1, end = 2>(t)  b = Neg(n)  last = Slice(m, b, far, one)
        e = Unsqueeze(extra, one)  s = Add(last, e)  o = Sin(s)  y = MatMul(o, O)
    }"""
WAYS = {
    # Numbers of all tokens, of the first one; of one token only, read one by one.
    "each": ("N, S", "S", "places = Identity(at)"),
    "time first": ("S, N", "S", "places = Transpose<perm = [1, 0]>(at)"),
    "the first": (
        "1",
        "S",
        """upwards = Shape<start = 1, end = 2>(t)  count = Squeeze(upwards)
        zero = Constant<value = int64 {0}>()  unit = Constant<value = int64 {1}>()
        behind = Range(zero, count, unit)  placed = Add(at, behind)
        first = Constant<value_ints = [0]>()  places = Unsqueeze(placed, first)""",
    ),
    "one token": ("N, 1", "1", "places = Identity(at)"),
}


@pytest.mark.parametrize(("at", "several", "places"), WAYS.values(), ids=WAYS)
def test_positions_masks_and_other_inputs(at: str, several: str, places: str) -> None:
    source = POSITIONS.replace("AT", at).replace("PLACES", places).replace("N, S", f"N, {several}")
    step = text_model(source, **{name: WEIGHTS[name] for name in "EO"})
    extra = RANDOM.standard_normal((2, 6)).astype(np.float32)

    def logits(tokens: np.ndarray) -> np.ndarray:
        extras = extra[: len(tokens)] if len(tokens) == 2 else extra[[int(tokens[0, 0] == 4)]]
        at = np.arange(tokens.shape[1])[None, :, None]
        return np.sin((WEIGHTS["E"][tokens] + at).sum(1) + extras) @ WEIGHTS["O"]

    options = {"states": {"c": "d"}, "token": "t", "position": "at", "mask": "ones"}
    feeds = {"max_tokens": np.array(NEW), "extra": extra}
    model = decoding.loop(step, **options)
    assert ("If" in [node.op_type for node in model.graph.node]) == (several == "S")
    session = ostinato.InferenceSession(model, fallback=False)
    for prompt in (PROMPT, PROMPT[:, :1]):
        (tokens,) = session.run(None, {"prompt": prompt, **feeds})
        greedy = generate(logits, prompt, lambda scored, _: scored.argmax(1), None)
        np.testing.assert_array_equal(tokens, greedy)
    if places != "places = Identity(at)":
        return
    tokens, _ = run(decoding.loop(step, method="beam", beams=2, **options), prompt=PROMPT, **feeds)
    for row, prompt in enumerate(PROMPT):
        np.testing.assert_array_equal(tokens[row], search_beams(logits, prompt, 2, None, 1.0)[0])


@pytest.mark.parametrize(
    ("token", "at", "other", "message"),
    [
        ("N, 1", "1", "N, 6", r"'t' of shape \['N', 1\] is one of each row"),
        ("N, S", "N, S", "N, S", r"'extra' of shape \['N', 'S'\] has a part for each token"),
        ("N, S", "N, M", "N, 6", r"'at' of shape \['N', 'M'\] has axes other"),
    ],
)
def test_steps_that_take_one_token_read_prompts_one_by_one(
    token: str, at: str, other: str, message: str
) -> None:
    step = text_model(
        f"""g (int64[{token}] t, int64[{at}] at, float[{other}] extra, float[N, 6] h)
            => (float[N, 1, 11] y, float[N, 6] n) {{
            x = Gather(E, t)  one = Constant<value_ints = [1]>()  r = ReduceMean<keepdims = 0,
            axes = [1]>(x)  n = Add(h, r)  o = MatMul(n, O)  y = Unsqueeze(o, one) }}""",
        **{name: WEIGHTS[name] for name in "EO"},
    )
    options = {"states": {"h": "n"}, "token": "t", "position": "at"}
    assert all(node.op_type != "If" for node in decoding.loop(step, **options).graph.node)
    with pytest.raises(OptionError, match=message):
        decoding.loop(step, prefill=True, **options)


@pytest.mark.parametrize("method", ["greedy", "beam"])
def test_a_cache_of_all_layers_is_carried_as_one_of_each(method: str) -> None:
    """Two layers that sum up their rows of one state `[N, layers, rows, 6]`, or of two."""
    layer = "k{i} = Concat<axis = 1>({past}, x{i}) s{i} = ReduceSum(k{i}, one) {after} = Sin(s{i})"
    first = layer.format(i=0, past="u", after="x1")
    second = layer.format(i=1, past="v", after="h")
    step = f"""g (int64[N, 1] t, PAST) => (float[N, 1, 11] y, PRESENT) {{
        one = Constant<value_ints = [1]>()  x0 = Gather(E, t)  TAKEN
        {first}  {second}  y = MatMul(h, O)  JOINED }}"""
    ways = {
        "float[N, 2, P, 6] s => float[N, 2, Q, 6] so": (
            "a, b = Split<axis = 1>(s)  u = Squeeze(a, one)  v = Squeeze(b, one)",
            "c = Unsqueeze(k0, one)  d = Unsqueeze(k1, one)  so = Concat<axis = 1>(c, d)",
            {"s": "so"},
        ),
        "float[N, P, 6] u, float[N, P, 6] v => float[N, Q, 6] k0, float[N, Q, 6] k1": (
            "",
            "",
            {"u": "k0", "v": "k1"},
        ),
    }
    found, kernels = [], []
    for declared, (taken, joined, states) in ways.items():
        past, present = declared.split(" => ")
        text = step.replace("PAST", past).replace("PRESENT", present)
        weights = {name: WEIGHTS[name] for name in "EO"}
        model = text_model(text.replace("TAKEN", taken).replace("JOINED", joined), **weights)
        beams = {"beams": 3} if method == "beam" else {}
        loop = decoding.loop(model, states=states, method=method, **beams)
        found.append(run(loop, prompt=PROMPT, max_tokens=NEW)[0])
        kernels.append(len(ostinato.InferenceSession(loop).report()["kernels"]))
    np.testing.assert_array_equal(*found)
    assert kernels[0] <= kernels[1]


STACKED = """g (int64[TOKEN] t, float[1, P, 6] c) => (float[1, ONE, 11] y, float[1, Q, 6] d) {
    one = Constant<value_ints = [1]>()  zero = Constant<value_ints = [0]>()  READ
    x = Gather(E, u)  d = Concat<axis = 1>(c, x)  m = CumSum(d, one)
    far = Constant<value_ints = [9223372036854775807]>()
    n = Shape<start = 1, end = 2>(x)  k = Neg(n)  last = Slice(m, k, far, one)  o = Sin(last)
    y = MatMul(o, O) }"""


@pytest.mark.parametrize(
    ("token", "read"), [("1, N", "u = Identity(t)"), ("N", "u = Unsqueeze(t, zero)")]
)
def test_a_step_of_one_row_and_any_number_of_tokens(token: str, read: str) -> None:
    source = STACKED.replace("TOKEN", token).replace("READ", read).replace("ONE", "N")
    weights = {name: WEIGHTS[name] for name in "EO"}
    model = decoding.loop(text_model(source, **weights), states={"c": "d"}, max_tokens=NEW)
    (tokens,) = run(model, prompt=PROMPT[:1])

    def logits(tokens: np.ndarray) -> np.ndarray:
        return np.sin(WEIGHTS["E"][tokens].sum(1)) @ WEIGHTS["O"]

    greedy = generate(logits, PROMPT[:1], lambda scored, _: scored.argmax(1), None)
    np.testing.assert_array_equal(tokens, greedy)
    with pytest.raises(InputError, match="'prompt'"):
        ostinato.InferenceSession(model).run(None, {"prompt": PROMPT})


def test_rows_of_another_name_are_refused() -> None:
    step = text_model(
        """g (int64[N, 1] t, float[B, P, 6] c) => (float[N, 1, 11] y, float[B, Q, 6] d) {
            x = Gather(E, t)  d = Concat<axis = 1>(c, x)  y = MatMul(x, O) }""",
        **{name: WEIGHTS[name] for name in "EO"},
    )
    with pytest.raises(OptionError, match=r"axis 0 of state 'c' of shape \['B', 'P', 6\]"):
        decoding.loop(step, states={"c": "d"})


@pytest.mark.parametrize("prefill", [True, False])
def test_states_that_are_given_come_first(prefill: bool) -> None:
    model = search(initial=["keys", "values"], prefill=prefill)
    past = RANDOM.standard_normal((2, 2, 2, 5, 8)).astype(np.float32)
    (tokens,) = run(model, prompt=PROMPT, max_tokens=NEW, keys=past[0], values=past[1])

    def after_past(sequence: np.ndarray) -> np.ndarray:
        feeds = {"token": sequence, "keys": past[0], "values": past[1]}
        return decoder().run(["logits"], feeds)[0][:, -1]

    expected = generate(after_past, PROMPT, lambda logits, _: logits.argmax(1), None)
    np.testing.assert_array_equal(tokens, expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"states": {"key": "next_keys"}}, "'key', which is no input"),
        ({"states": {"keys": "logit"}}, "'logit', which is no output"),
        ({"states": {"keys": "next_keys"}}, "logits= has to say"),
        ({"states": STATES, "method": "best"}, "expected one of greedy, sample, beam"),
        ({"states": STATES, "initial": ["token"]}, "'token', which is no state"),
        ({"states": STATES, "method": "sample", "top_p": 0.0}, "top_p is 0.0"),
        ({"states": STATES, "method": "sample", "top_k": 0}, "top_k is 0"),
        ({"states": STATES, "method": "sample", "temperature": 0.0}, "temperature is 0.0"),
        ({"states": STATES, "method": "beam", "beams": 0}, "beams is 0"),
        ({"states": STATES, "max_tokens": -1}, "max_tokens is -1"),
        ({"states": STATES, "mask": "token"}, "token"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        decoding.loop(DECODER, **options)


def test_an_old_step_is_refused() -> None:
    model = text_model(
        "g (int64[1] t) => (float[1, 3] y) { y = Gather(E, t) }", E=WEIGHTS["E"][:, :3]
    )
    model.opset_import[0].version = 12
    with pytest.raises(OptionError, match="opset 12"):
        decoding.loop(model, states={})
