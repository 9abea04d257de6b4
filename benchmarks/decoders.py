"""Decoders to generate with: those of tests/models/generation, and one of the size of real ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import ostinato
from benchmarks.roofline import Roofline

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "models" / "generation"
VOCABULARY, HEADS = 1000, 4
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Decoder:
    """A step of one row.

    states: input -> output. tokens: how many are generated in a row of a table. prompt: how many
    come before, read by one call. counted: the input that is told how many tokens came before; a
    mask has as many ones, all others are of the shape `position`. others: inputs that are the same
    in every step. weight_bytes: what every step reads; row_bytes: what each token adds to that; 0
    for steps so small that this is not what they take.
    """

    path: Path
    states: Mapping[str, str]
    tokens: Sequence[int]
    prompt: int = 1
    counted: str | None = None
    is_mask: bool = False
    position: tuple[int, ...] = (1, 1)
    others: Mapping[str, np.ndarray] = field(default_factory=dict)
    weight_bytes: int = 0
    row_bytes: int = 0

    def loop(self, **options: Any) -> onnx.ModelProto:
        """The step in a loop that takes the most likely tokens."""
        parts = options
        if self.counted is not None:
            parts["mask" if self.is_mask else "position"] = self.counted
        return ostinato.decoding.loop(self.path, states=self.states, token="token", **parts)

    def first_tokens(self) -> np.ndarray:
        """The prompt, int64[1, prompt]."""
        return np.arange(1, self.prompt + 1)[None] % VOCABULARY

    def bound(self, count: int, limits: Roofline) -> float | None:
        """The least seconds in which this core reads what so many tokens need."""
        if not self.weight_bytes:
            return None
        read = self.weight_bytes + self.row_bytes * (count + 1) // 2
        return count * read / limits.bandwidth(read)

    def empty(self, rows: int = 1) -> Arrays:
        """The states before the first token, of so many rows."""
        sizes = {"N": rows, "P": 0}
        inputs = {value.name: value for value in onnx.load(str(self.path)).graph.input}
        return {
            name: np.zeros(
                [
                    dim.dim_value if dim.HasField("dim_value") else sizes[dim.dim_param]
                    for dim in inputs[name].type.tensor_type.shape.dim
                ],
                np.float32,
            )
            for name in self.states
        }

    def given(self, number: int) -> Arrays:
        """What step `number` is given besides its token and the states."""
        if self.counted is None:
            return dict(self.others)
        ones = np.ones((1, number + 1), np.int64)
        value = ones if self.is_mask else np.full(self.position, number)
        return {**self.others, self.counted: value}

    def placed(self, number: int) -> Arrays:
        """What step `number` of one row is given whose caches have a fixed length."""
        return {"token": np.full((1, 1), number + 1), "position": np.full(1, number)}


def small() -> dict[str, Decoder]:
    """The decoders of the tests, of width 16: what is left is the overhead of a step."""
    layers = {f"{kind}_{i}": f"next_{kind}_{i}" for i in (0, 1) for kind in ("keys", "values")}
    random = np.random.default_rng(0)
    cross = {n: random.standard_normal((1, 4, 20, 4), np.float32) for n in ("keys", "values")}
    crossed = {f"cross_{name}": value for name, value in cross.items()}
    encoded = {"encoded": random.standard_normal((1, 20, 16), np.float32)}
    one = {"keys": "next_keys", "values": "next_values"}
    return {
        "GPT-2": Decoder(FOLDER / "gpt2.onnx", layers, (60,), counted="position"),
        "Llama": Decoder(FOLDER / "llama.onnx", layers, (60,), counted="mask", is_mask=True),
        "T5": Decoder(FOLDER / "t5.onnx", layers, (60,), others=encoded),
        "Whisper": Decoder(
            FOLDER / "whisper.onnx", one, (60,), counted="position", position=(1,), others=crossed
        ),
    }


LAYER = """
    m{i} = LayerNormalization<axis = -1>(x{i}, Scale, Bias)
    project{i} = MatMul(m{i}, Wqkv{i})
    q{i}, k{i}, v{i} = Split<axis = 2>(project{i})
    q{i}_heads = Reshape(q{i}, heads)  query{i} = Transpose<perm = [0, 2, 1, 3]>(q{i}_heads)
    k{i}_heads = Reshape(k{i}, heads)  key{i} = Transpose<perm = [0, 2, 1, 3]>(k{i}_heads)
    v{i}_heads = Reshape(v{i}, heads)  value{i} = Transpose<perm = [0, 2, 1, 3]>(v{i}_heads)
    next_keys_{i} = {put}(keys_{i}, {index}key{i})
    next_values_{i} = {put}(values_{i}, {index}value{i})
    turned{i} = Transpose<perm = [0, 1, 3, 2]>(next_keys_{i})
    dots{i} = MatMul(query{i}, turned{i})  scores{i} = Mul(dots{i}, scale)
    masked{i} = {masked}
    weights{i} = Softmax<axis = -1>(masked{i})  seen{i} = MatMul(weights{i}, next_values_{i})
    moved{i} = Transpose<perm = [0, 2, 1, 3]>(seen{i})  joined{i} = Reshape(moved{i}, flat)
    out{i} = MatMul(joined{i}, Wo{i})  y{i} = Add(x{i}, out{i})
    n{i} = LayerNormalization<axis = -1>(y{i}, Scale, Bias)
    up{i} = MatMul(n{i}, Wup{i})  gate{i} = Sigmoid(up{i})  wide{i} = Mul(up{i}, gate{i})
    down{i} = MatMul(wide{i}, Wdown{i})  x{next} = Add(y{i}, down{i})
"""

CAUSAL = """
    zero = Constant<value = int64 {0}>()
    past = Shape<start = 2, end = 3>(keys_0)  new = Shape<start = 1, end = 2>(token)
    all = Add(past, new)  all_number = Squeeze(all)  past_number = Squeeze(past)
    one = Constant<value = int64 {1}>()  row = Range(zero, all_number, one)
    queries = Range(past_number, all_number, one)  first = Constant<value_ints = [1]>()
    column = Unsqueeze(queries, first)  sees = LessOrEqual(row, column)
    nothing = Constant<value = float {-1e9}>()
"""

FIXED = """
    last_three = Constant<value_ints = [1, 2, 3]>()  place = Unsqueeze(position, last_three)
    heads_of_one = Constant<value_ints = [1, {heads}, 1, {size}]>()
    index = Expand(place, heads_of_one)  sees = LessOrEqual(Numbers, place)
    nothing = Constant<value = float {{-1e9}}>()
"""


def large(
    folder: Path,
    layers: int = 6,
    width: int = 256,
    tokens: Sequence[int] = (),
    rows: int | str = 1,
    prompt: int = 1,
    places: int = 0,
) -> Decoder:
    """A decoder of so many layers with norms first and Swish, written to `folder`.

    rows: how many there are, or the name of the dimension. prompt: above 1, a step takes several
    tokens, each of which sees those before it. places: of caches of a fixed length, of which a step
    replaces the place that `position` says, for each row; 0 for caches that grow.
    """
    size = width // HEADS
    cache = [rows, HEADS, places or "P", size]
    states = {
        f"{kind}_{i}": f"next_{kind}_{i}" for i in range(layers) for kind in ("keys", "values")
    }
    several = prompt > 1
    masked = "Where(sees, scores{i}, nothing)" if several or places else "Identity(scores{i})"
    put, index = ("ScatterElements<axis = 2>", "index, ") if places else ("Concat<axis = 2>", "")
    body = "".join(
        LAYER.format(i=i, next=i + 1, masked=masked.format(i=i), put=put, index=index)
        for i in range(layers)
    )
    given = f", int64[{rows}] position" if places else ""
    before = FIXED.format(heads=HEADS, size=size) if places else CAUSAL if several else ""
    taken = "S" if several else 1
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
        decoder (int64[{rows}, {taken}] token{given})
            => (float[{rows}, {taken}, {VOCABULARY}] logits) {{
            {before}
            heads = Constant<value_ints = [0, 0, {HEADS}, {size}]>()
            flat = Constant<value_ints = [0, 0, {width}]>()
            scale = Constant<value = float {{{size**-0.5}}}>()
            x0 = Gather(Embed, token)
            {body}
            last = LayerNormalization<axis = -1>(x{layers}, Scale, Bias)
            logits = MatMul(last, Classes)
        }}"""
    )
    graph = model.graph
    for before, after in states.items():
        graph.input.append(helper.make_tensor_value_info(before, TensorProto.FLOAT, cache))
        grown = cache if places else [rows, HEADS, "Q", size]
        graph.output.append(helper.make_tensor_value_info(after, TensorProto.FLOAT, grown))
    random = np.random.default_rng(0)
    shapes = {"Embed": (VOCABULARY, width), "Classes": (width, VOCABULARY)}
    for i in range(layers):
        shapes |= {f"Wqkv{i}": (width, 3 * width), f"Wo{i}": (width, width)}
        shapes |= {f"Wup{i}": (width, 4 * width), f"Wdown{i}": (4 * width, width)}
    weights = {
        name: (random.standard_normal(shape) * shape[0] ** -0.5).astype(np.float32)
        for name, shape in shapes.items()
    }
    weights["Embed"] = random.standard_normal((VOCABULARY, width)).astype(np.float32)
    weights |= {"Scale": np.ones(width, np.float32), "Bias": np.zeros(width, np.float32)}
    if places:
        weights["Numbers"] = np.arange(places).reshape(1, 1, 1, places)
    graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in weights.items())
    path = folder / f"decoder_{layers}_{width}_{rows}_{taken}_{places}.onnx"
    onnx.save(model, str(path))
    read = sum(value.nbytes for name, value in weights.items() if name != "Embed")
    added = len(states) * width * np.dtype(np.float32).itemsize
    return Decoder(path, states, tokens, prompt, weight_bytes=read, row_bytes=added)
