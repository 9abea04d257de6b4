"""Random command lines: models and inputs, good and bad ones, and options that may not fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from tools.fuzz.choosing import Chooser
from tools.fuzz.modes import Array
from tools.fuzz.random_loops import random_loop
from tools.fuzz.random_models import random_model
from tools.fuzz.random_states import random_states
from tools.fuzz.stream_models import random_model as random_stream

# Small models that are rare: types and names of inputs and outputs, sizes of 0, no inputs.
_RARE = (
    "(string[N] x) => (string[N] y) { y = Identity(x) }",
    "(string[N] x) => (int64[N] y) { y = LabelEncoder<keys_strings=['a'], values_int64s=[1]>(x) }",
    "(bool x) => (bool y) { y = Not(x) }",
    "(float[0, N] x) => (float[0, N] y, float[N] z) { y = Relu(x) z = ReduceSum<keepdims=0>(x) }",
    '(float[N] "ein gang", float[N] "é/ü") => (float[N] "../y") { "../y" = Add("ein gang","é/ü") }',
    '(float[N] x) => (float[N] "y=z", float[N] "") { "y=z" = Tanh(x) }',
    "() => (float[2] y) <float[2] y0 = {1, 2}> { y = Neg(y0) }",
    "(float[N, M] x) => (float[N, M] y) { y = Log(x) }",
    "(float[N] x, float[M] w) => (float[K] y) { y = Div(x, w) }",
    "(int32[N] x, int32[N] w) => (int32[N] y) { y = Div(x, w) }",
    "(int64 n) => (float[K] y) <int64 z = {0}, int64 o = {1}> { r = Range(z, n, o) "
    "y = Cast<to=1>(r) }",
    "(float[N] x, int64[K] s) => (float[?] y) { y = Reshape(x, s) }",
    "(float[3] x, int64[K] i) => (float[K] y) { y = Gather(x, i) }",
    "(bfloat16[N] x) => (bfloat16[N] y) { y = Neg(x) }",
    "(float16[N, 4] x) => (float16[N] y) { y = ReduceMax<keepdims=0>(x) }",
    "(uint8[N] x) => (uint8[N] y) { y = Add(x, x) }",
    "(seq(float[N]) x) => (float[M] y) { y = ConcatFromSequence<axis=0>(x) }",
    "(float[N] x) => (seq(float[N]) y) { y = SequenceConstruct(x, x) }",
    "(optional(float[N]) x) => (bool y) { y = OptionalHasElement(x) }",
    "(float[N, 1000000000000] x) => (float[N, 1000000000000] y) { y = Relu(x) }",
    "(float[N] x) => (float[M] y) <int64[1] m = {4000000000000}> { y = Expand(x, m) }",
    "(complex64[N] x) => (complex64[N] y) { y = Identity(x) }",
    "(float[N, 2, T] x, float[N, 3] h) => (float[N, 2, T] y, float[N, 3] g) "
    "{ y = Softmax<axis=-1>(x) g = Tanh(h) }",
    "(float[T, N, 4] x) => (float[T, N, 4] y) <int64 a = {0}> { y = CumSum(x, a) }",
    "(float[N] x) => (float[N] y) { y = Unheard(x) }",
    "(float[N] x) => (float[N] y) { y = RandomNormalLike(x) }",
    "(float[N] x) => (int64[?, ?] y) { y = NonZero(x) }",
)
_BAD_PATHS = ("missing.onnx", ".", "", "\U0001f600.onnx", "a" * 300, "https://x.invalid/m.onnx")
_SIZES = ("0", "1", "2", "3", "5", "-1", "1.5", "x", "", "1e3", str(2**40), str(2**63), "9" * 5000)
_TYPES = ("float32", "float64", "float16", "int64", "int32", "uint8", "bool", "complex64", "U3")
_COMMANDS = ("run", "run", "run", "compare", "inspect", "profile", "stream", "build", "quantize")
_STAGES = ("onnx", "passes", "program", "schedule", "llvm", "asm", "nothing")
_PASSES = ("fuse", "hoist", "reroll", "constant_folding", "nothing", "", "FUSE")
_FIELDS = ("threads=2", "threads=0", "threads=x", "seed=-1", "seed=7", "integer_products=true")
_MORE_FIELDS = ("flush_denormals=1", "fallback=true", "=", "threads=99999999999999999999")
OPSET = 18


@dataclass
class _Command(Chooser):
    """A command line under construction, whose files are in a folder."""

    folder: Path
    words: list[str] = field(default_factory=list)

    def model(self, seed: int) -> onnx.ModelProto | None:
        """A model, or None for a path that leads to none."""
        kind = self.choose(("graph", "graph", "loop", "states", "stream", "rare", "rare", "rare"))
        if kind == "graph":
            return random_model(seed)[0]
        if kind == "loop":
            return random_loop(seed)[0]
        if kind == "states":
            return random_states(seed).model
        if kind == "stream":
            return random_stream(seed)
        text = f'<ir_version: 8, opset_import: ["": {OPSET}]> g {self.choose(_RARE)}'
        try:
            return onnx.parser.parse_model(text)
        except onnx.parser.ParseError:
            return None

    def path(self, seed: int) -> tuple[str, onnx.ModelProto | None]:
        model = self.model(seed)
        if model is None or self.chance(0.05):
            return str(self.choose(_BAD_PATHS)), None
        data, path = model.SerializeToString(), self.folder / self.choose(("m.onnx", "é m.onnx"))
        if self.chance(0.04):
            data = data[: int(self.random.integers(len(data)))]
        path.write_bytes(data)
        return str(path), model

    def array(self, name: str, number: int) -> str:
        """A file for an input; the option for it."""
        path = self.folder / f"input{number}.npy"
        shape = [int(n) for n in self.random.integers(0, 4, int(self.random.integers(0, 4)))]
        array: Array = np.asarray(self.random.standard_normal(shape) * 2, self.choose(_TYPES))
        kind = self.choose(
            ("plain", "plain", "nan", "order", "object", "record", "swapped", "text")
        )
        if kind == "nan" and array.dtype.kind == "f":
            array[...] = np.nan
        if kind == "order":
            array = np.asfortranarray(array)
        if kind == "swapped":
            array = array.astype(array.dtype.newbyteorder(">"))
        if kind == "object":
            np.save(path, np.array([{"a": 1}, None], object), allow_pickle=True)
        elif kind == "record":
            np.save(path, np.zeros(2, [("a", "f4"), ("b", "i8")]))
        elif kind == "text":
            path.write_text(self.choose(("", "1 2 3", "\x93NUMPY\x01")))
        else:
            np.save(path, array)
        return f"--input={name}={self.choose((path, path, path, self.folder, 'none.npy'))}"

    def common(self, model: onnx.ModelProto | None) -> None:
        inputs = [] if model is None else [value.name for value in model.graph.input]
        sizes = ["N", "T"] if model is None else [*sorted(_names(model)), "Unknown"]
        for name in sizes:
            if self.chance(0.5 if name != "Unknown" else 0.05):
                chosen = self.choose(_SIZES[:5] if self.chance(0.8) else _SIZES)
                self.words.append(f"--dim={name}={chosen}")
        for number, name in enumerate([*inputs, "unknown"]):
            if self.chance(0.3 if name != "unknown" else 0.05):
                self.words.append(self.array(name, number))
        self.maybe(0.2, f"--disable={self.choose(_PASSES)}")
        self.maybe(0.2, f"--set={self.choose((*_FIELDS, *_MORE_FIELDS))}")
        self.maybe(0.2, "--no-fallback")
        self.maybe(0.5, "--json")

    def maybe(self, probability: float, *words: str) -> None:
        if self.chance(probability):
            self.words += words


def _names(model: onnx.ModelProto) -> set[str]:
    found = set()
    for value in (*model.graph.input, *model.graph.output):
        found.update(d.dim_param for d in value.type.tensor_type.shape.dim if d.dim_param)
    return found


def _pairs(c: _Command, model: onnx.ModelProto | None) -> str:
    """A state, that is an input and an output, or names that are none."""
    if model is None or not model.graph.input or not model.graph.output or c.chance(0.1):
        return str(c.choose(("a=b", "a", "=", "")))
    return f"{c.choose(model.graph.input).name}={c.choose(model.graph.output).name}"


def random_command(seed: int, folder: Path) -> list[str]:
    """The words of a command line behind `ostinato`; its files are written into the folder."""
    c = _Command(np.random.default_rng(seed), folder)
    command = str(c.choose(_COMMANDS))
    path, model = c.path(seed)
    c.words = [command, path]
    out = str(folder / c.choose(("out", "out.onnx", "a/b/out.onnx", "")))
    if command in ("run", "compare", "profile", "inspect"):
        c.common(model)
    if command == "run":
        c.maybe(0.4, "--output-dir", out)
    elif command == "compare":
        c.maybe(0.5, "--vs", str(c.choose(("reference", "onnxruntime", "nothing"))))
        c.maybe(0.3, "--tolerance", str(c.choose(("0", "1e-3", "-1", "nan", "x"))))
    elif command == "inspect":
        c.words = [word for word in c.words if not word.startswith("--input")]
        c.maybe(0.5, "--stage", str(c.choose(_STAGES)))
        c.maybe(0.3, "--why")
        c.maybe(0.2, f"--assert-op-count={c.choose(('Add=0', 'Add', 'Add=x', 'Loop=1'))}")
        c.maybe(0.2, "--assert-native")
        c.maybe(0.2, f"--assert-kernels={c.choose(('3', '-1'))}")
        c.maybe(0.2, f"--target={c.choose(('host', 'cortex-m7', 'wasm32', 'nothing', ''))}")
    elif command == "profile":
        c.words += [f"--seconds={c.choose(('0.01', '0.01', '0', 'x'))}"]
        c.maybe(0.3, "--html", out)
        c.maybe(0.3, "--trace", out)
    elif command == "stream":
        names = ["x"] if model is None else ["x", *(value.name for value in model.graph.input)]
        c.maybe(0.6, f"--axis={c.choose(names)}={c.choose('0129')}")
        c.maybe(0.4, f"--time={c.choose(('T', 'N', 'x', ''))}")
        c.maybe(0.4, f"--chunk={c.choose(('0', '1', '3', '-1', '99999999999999999999'))}")
        c.maybe(0.3, f"--context={c.choose(('3', 'all', '-1', 'x', ''))}")
        c.maybe(0.5, "-o", out)
        c.maybe(0.4, "--verify")
        c.maybe(0.5, "--json")
    elif command == "build":
        c.words += ["-o", out]
        c.maybe(0.3, f"--target={c.choose(('x86-64-v3', 'cortex-a53', 'nothing', ''))}")
        c.maybe(0.3, f"--state={_pairs(c, model)}")
        c.maybe(0.3, f"--name={c.choose(('m', '1x', 'int', 'a b', 'é', ''))}")
        c.maybe(0.3, f"--dim={c.choose(('N', 'T', 'x'))}={c.choose(_SIZES)}")
        c.maybe(0.3, f"--weights={c.choose(('inside', 'file', 'x'))}")
        c.maybe(0.5, "--json")
    elif command == "quantize":
        c.words += ["-o", out]
        c.maybe(0.4, f"--weights={c.choose(('int8', 'int4', 'bf16', 'f16', 'x'))}")
        c.maybe(0.3, f"--activations={c.choose(('int8-dynamic', 'int8-static', 'x'))}")
        c.maybe(0.3, f"--block={c.choose(('32', '0', '-1', '7'))}")
        c.maybe(0.2, f"--target-snr={c.choose(('30', 'nan', '-5', '1e9'))}")
        c.maybe(0.2, f"--exclude={c.choose(('*', '[', ''))}")
        c.maybe(0.2, f"--state={_pairs(c, model)}")
        c.maybe(0.2, f"--calibration={c.choose(('none.npz', str(folder)))}")
        c.maybe(0.4, "--verify")
        c.maybe(0.4, "--json")
    return c.words
