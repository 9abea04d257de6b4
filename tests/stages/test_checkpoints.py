"""Models that have the structure of a compiled one, with other weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import ostinato
from ostinato.codegen.artifact import Artifact
from ostinato.element_types import dtype_name, numpy_dtype
from ostinato.errors import OstinatoError
from ostinato.guards import Guards
from ostinato.model import origins as origins_module
from ostinato.model.load import load_model
from ostinato.model.origins import Origins
from ostinato.ops.core.together import Together
from ostinato.optimization import run_all_passes
from ostinato.program.digest import counted, digest
from ostinato.program.laid import elements
from ostinato.program.nodes import Program
from ostinato.protobuf import structure
from ostinato.runtime import build
from ostinato.stages.checkpoints import Checkpoint, Reader, Writer
from ostinato.stages.partition import Segment, partition
from ostinato.stages.stored_programs import Code
from tests.cases.table import CASES

Array = np.ndarray[Any, Any]

FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What has been compiled, not found."""
    found: list[Any] = []
    compile_one = build._compile

    def watched(*arguments: Any) -> Any:
        found.append(arguments[0])
        return compile_one(*arguments)

    monkeypatch.setattr(build, "_compile", watched)
    return found


def tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """All floats of a model that are weights."""
    yield from (t for t in graph.initializer if t.data_type in FLOATS)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.t.data_type in FLOATS:
                yield attribute.t
            if attribute.HasField("g"):
                yield from tensors(attribute.g)


def changed(model: onnx.ModelProto, *names: str) -> onnx.ModelProto:
    """The model with other weights: all, or those of these names."""
    made, random = onnx.ModelProto(), np.random.default_rng(len(names))
    made.CopyFrom(model)
    for tensor in tensors(made.graph):
        if not names or tensor.name in names:
            values = numpy_helper.to_array(tensor)
            other = (values * random.uniform(0.5, 1.5, values.shape)).astype(values.dtype)
            tensor.CopyFrom(numpy_helper.from_array(other, tensor.name))
    return made


def model(text: str, **shapes: tuple[int, ...]) -> onnx.ModelProto:
    """A model with random weights of these shapes."""
    made = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}')
    random = np.random.default_rng(0)
    for name, shape in shapes.items():
        values = random.standard_normal(shape).astype(np.float32) / 4
        made.graph.initializer.append(numpy_helper.from_array(values, name))
    return made


GRU = model(
    """g (float[T, 1, 8] x) => (float[T, d, 1, 16] y) {
        y = GRU<hidden_size = 16, linear_before_reset = 1>(x, w, r, b) }""",
    w=(1, 48, 8),
    r=(1, 48, 16),
    b=(1, 96),
)
LSTM = model(
    """g (float[T, 1, 8] x) => (float[T, 2, 1, 16] y) {
        y = LSTM<hidden_size = 16, direction = "bidirectional">(x, w, r, b) }""",
    w=(2, 64, 8),
    r=(2, 64, 16),
    b=(2, 128),
)
# Positions together, a stride, a transposed one, and a product that turns its weights.
IMAGE = model(
    """g (float[1, 16, 24, 24] x) => (float y) {
        a = Conv<pads = [1, 1, 1, 1]>(x, w, b)
        c = Conv<strides = [2, 2], pads = [2, 2, 2, 2]>(a, v)
        d = ConvTranspose<strides = [2, 2], pads = [1, 1, 1, 1]>(c, u)
        e = GlobalAveragePool(d)  f = Flatten(e)  y = Gemm<transB = 1>(f, m, n) }""",
    w=(64, 16, 3, 3),
    b=(64,),
    v=(32, 64, 5, 5),
    u=(32, 64, 4, 4),
    m=(80, 64),
    n=(80,),
)
# What exporters write of recurrent weights, in branches.
BRANCHES = model(
    """g (float[4, 8] x, bool c) => (float[4, 16] y) {
        y = If(c) <
            then_branch = p () => (float[4, 16] r) {
                two = Constant<value = int64[1] {2}>()  zero = Constant<value = int64[1] {0}>()
                half = Constant<value = int64[1] {16}>()  one = Constant<value = int64[1] {1}>()
                rows = Slice(w, zero, half, zero)  t = Transpose<perm = [1, 0]>(rows)
                q = MatMul(x, t)  sum = Add(b, k)  r = Add(q, sum) },
            else_branch = o () => (float[4, 16] s) {
                from = Constant<value = int64[1] {16}>()  to = Constant<value = int64[1] {32}>()
                axis = Constant<value = int64[1] {0}>()
                rows = Slice(w, from, to, axis)  t = Transpose<perm = [1, 0]>(rows)
                s = MatMul(x, t) }
        > }""",
    w=(32, 8),
    b=(4, 16),
    k=(4, 16),
)
EMBEDDED = model(
    """g (int64[N] i) => (float[N, 64] y) {
        e = Gather(table, i)  n = LayerNormalization(e, g, h)  y = MatMul(n, w) }""",
    table=(40, 64),
    g=(64,),
    h=(64,),
    w=(64, 64),
)
NORMED = model(
    """g (float[1, 64, 5] x) => (float[1, 64, 5] y) {
        y = BatchNormalization(x, w, b, m, v) }""",
    **{name: (64,) for name in "wbmv"},
)
NORMED.graph.initializer[3].CopyFrom(
    numpy_helper.from_array(np.linspace(0.5, 2, 64, dtype=np.float32), "v")
)
# Halves as they are, and those that floats are made of.
CAST = model(
    """g (float[1, 64] x) => (float[1, 80] y) {
        v = Cast<to = 1>(w)  c = Cast<to = 1>(b)  z = MatMul(x, v)  y = Add(z, c) }""",
    w=(64, 80),
    b=(80,),
)


def narrowed(given: onnx.ModelProto, kind: int, *, inside: bool = False) -> onnx.ModelProto:
    """A model of floats of 16 bits. inside: inputs and outputs stay as they are."""
    made = onnx.ModelProto()
    made.CopyFrom(given)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    for tensor in tensors(made.graph):
        array = numpy_helper.to_array(tensor).astype(dtype)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for value in () if inside else (*made.graph.input, *made.graph.output):
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            value.type.tensor_type.elem_type = kind
    return made


_, FLOAT16, BFLOAT16 = FLOATS
MODELS = {
    "NORMED": NORMED,
    "GRU": GRU,
    "LSTM": LSTM,
    "IMAGE": IMAGE,
    "BRANCHES": BRANCHES,
    "EMBEDDED": EMBEDDED,
    "GRU of halves": narrowed(GRU, FLOAT16),
    "LSTM of halves": narrowed(LSTM, FLOAT16),
    "IMAGE of halves": narrowed(IMAGE, FLOAT16),
    "BRANCHES of halves": narrowed(BRANCHES, FLOAT16),
    "EMBEDDED of halves": narrowed(EMBEDDED, BFLOAT16),
    "CAST": narrowed(CAST, FLOAT16, inside=True),
    "CAST of bfloat16": narrowed(CAST, BFLOAT16, inside=True),
}


def feeds(session: ostinato.InferenceSession) -> dict[str, Array]:
    random = np.random.default_rng(1)
    found: dict[str, Array] = {}
    for one in session.get_inputs():
        shape = [n if isinstance(n, int) else 3 for n in one.shape]
        if "float" in one.type:
            dtype = numpy_dtype(dtype_name(one.type[len("tensor(") : -1]))
            found[one.name] = random.standard_normal(shape).astype(dtype)
        else:
            found[one.name] = np.ones(shape, bool if "bool" in one.type else np.int64)
    return found


def outputs(made: onnx.ModelProto, cache: Path | None) -> list[Array]:
    session = ostinato.InferenceSession(made.SerializeToString(), cache_dir=cache)
    return session.run(None, feeds(session))


@pytest.mark.parametrize("name", MODELS)
def test_other_weights_are_not_compiled(name: str, tmp_path: Path, compiled: list[Any]) -> None:
    before = outputs(MODELS[name], tmp_path)
    assert len(compiled) == 1
    for other in (changed(MODELS[name]), changed(MODELS[name], "w")):
        found = outputs(other, tmp_path)
        assert len(compiled) == 1
        expected = outputs(other, None)
        compiled.pop()
        for a, b, c in zip(found, expected, before, strict=True):
            np.testing.assert_array_equal(a, b)
            assert not np.array_equal(a, c)


def test_the_report_names_the_model_that_was_given(tmp_path: Path) -> None:
    for made in (GRU, changed(GRU)):
        data = made.SerializeToString()
        session = ostinato.InferenceSession(data, cache_dir=tmp_path)
        alone = ostinato.InferenceSession(data, cache_dir=None)
        assert session.report()["fingerprint"] == alone.report()["fingerprint"]


def test_an_entry_takes_no_room_for_other_weights(tmp_path: Path) -> None:
    outputs(GRU, tmp_path)
    before = sorted(tmp_path.iterdir())
    outputs(changed(GRU), tmp_path)
    assert sorted(tmp_path.iterdir()) == before


def dilated(infinite: bool) -> onnx.ModelProto:
    """A convolution that leaves products of padding out only if its weights are finite."""
    made = model(
        """g (float[1, 4, 9, 9] x) => (float y) {
            y = Conv<dilations = [6, 6], pads = [6, 6, 6, 6]>(x, w) }""",
        w=(4, 4, 3, 3),
    )
    if infinite:
        values = numpy_helper.to_array(made.graph.initializer[0]).copy()
        values[0, 0, 0, 0] = np.inf
        made.graph.initializer[0].CopyFrom(numpy_helper.from_array(values, "w"))
    return made


def test_weights_that_decide_something_are_compiled_anew(
    tmp_path: Path, compiled: list[Any]
) -> None:
    for number, infinite in enumerate((False, True, False), 1):
        found = outputs(dilated(infinite), tmp_path)
        assert len(compiled) == min(number, 2)
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(found[0], outputs(dilated(infinite), None)[0])
        compiled.pop()


def test_constants_that_are_one_because_they_are_equal_have_to_stay_equal(
    tmp_path: Path, compiled: list[Any]
) -> None:
    made = model(
        """g (float[1, 64] x) => (float[1, 64] y, float[1, 64] z) {
            p = Add(a, b)  q = Add(c, d)  y = Add(x, p)  z = Mul(x, q) }""",
        **{name: (1, 64) for name in "abcd"},
    )

    def of(share: float) -> onnx.ModelProto:
        """Two sums of small integers: c + d is a + b where the share of d is 3/4."""
        other, random = onnx.ModelProto(), np.random.default_rng(0)
        other.CopyFrom(made)
        a, b = (random.integers(1, 99, (1, 64)).astype(np.float32) for _ in "ab")
        arrays = a, b, (a + b) * np.float32(0.25), (a + b) * np.float32(share)
        for tensor, array in zip(other.graph.initializer, arrays, strict=True):
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
        return other

    for number, share in ((1, 0.75), (2, 0.5)):
        found, expected = outputs(of(share), tmp_path), outputs(of(share), None)
        compiled.pop()
        assert len(compiled) == number
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_sums_that_flushing_would_change_are_compiled_anew(
    tmp_path: Path, compiled: list[Any]
) -> None:
    made = model(
        "g (float[1, 64] x) => (float[1, 64] y) { s = Add(a, b)  y = Add(x, s) }",
        a=(1, 64),
        b=(1, 64),
    )
    outputs(made, tmp_path)
    small = onnx.ModelProto()
    small.CopyFrom(made)
    values = numpy_helper.to_array(made.graph.initializer[0]).copy()
    values[0, 0] = 1e-40
    small.graph.initializer[0].CopyFrom(numpy_helper.from_array(values, "a"))
    found = outputs(small, tmp_path)
    assert len(compiled) == 2
    np.testing.assert_array_equal(found[0], outputs(small, None)[0])


def programs(data: bytes, origins: Origins) -> list[Program]:
    """The native programs of a model, before they are scheduled."""
    loaded = load_model(data)
    origins.attach(loaded)
    run_all_passes(loaded)
    together = Together()
    parts = partition(loaded, True, Guards.LIKELY, together=together, origins=origins)
    return [part.program for part in parts.whole() if isinstance(part, Segment)]


def differences(data: bytes) -> str:
    """What becomes of a model whose free weights are others, beside what its records say."""
    weights = structure.split(memoryview(data))[1]
    checkpoint = Checkpoint(weights)
    checkpoint.origins = Origins(weights)
    try:
        first = programs(data, checkpoint.origins)
    except OstinatoError:
        return ""
    nothing = Artifact(b"", (), (), (), b"", {})
    checkpoint.finish(first, [Code(nothing, p.constants, counted(p)) for p in first])
    blobs: list[bytes | Array] = []
    writer = Writer(checkpoint.origins, blobs)
    records = [{n: writer.contents(c) for n, c in p.constants.items()} for p in first]
    equal = [[writer.array(one) for one in pair] for pair in checkpoint.origins.equal]
    made, others = writer.made(), bytearray(data)
    random, weights = np.random.default_rng(1), structure.split(memoryview(others))[1]
    for number, weight in enumerate(weights):
        if number not in checkpoint.fixed:
            array = weight.array()
            values = random.permutation(array) * array.dtype.type(1.5) + array.dtype.type(0.01)
            weight.data[:] = values.astype(array.dtype).tobytes()
    reader = Reader([weight.array() for weight in weights], blobs)
    if not all(map(reader.make, made)) or not all(map(reader.equal, equal)):
        return ""
    second = programs(bytes(others), Origins(weights))
    if list(map(digest, first)) != list(map(digest, second)):
        return "another program"
    for record, program in zip(records, second, strict=True):
        for name, constant in program.constants.items():
            found = elements(reader.contents(record[name]))
            if found.tobytes() != elements(constant).tobytes():
                return f"other elements of {name}"
    return ""


def test_programs_of_all_cases_are_the_same_for_other_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two floats are weights here, so that whoever looks at one without saying so is found.

    A single one becomes a number of the code.
    """
    for module in (structure, origins_module):
        monkeypatch.setattr(module, "LEAST", 2)
    wrong = {}
    for case in CASES:
        data = case.model.SerializeToString()
        try:
            has_weights = bool(structure.split(memoryview(data))[1])
        except IndexError:
            continue
        found = differences(data) if has_weights else ""
        if found:
            wrong[case.name] = found
    assert not wrong


def save_apart(made: onnx.ModelProto, path: Path) -> None:
    """Save a model with its weights in w.bin beside it."""
    (path.parent / "w.bin").unlink(missing_ok=True)
    copy = onnx.ModelProto()
    copy.CopyFrom(made)
    onnx.save(copy, path, save_as_external_data=True, location="w.bin", size_threshold=0)


def test_weights_in_files_of_their_own_may_be_others(tmp_path: Path, compiled: list[Any]) -> None:
    path, cache = tmp_path / "model.onnx", tmp_path / "cache"
    for number, made in enumerate((IMAGE, changed(IMAGE), IMAGE)):
        save_apart(made, path)
        session = ostinato.InferenceSession(path, cache_dir=cache)
        found = session.run(None, feeds(session))
        assert len(compiled) == 1, number
        np.testing.assert_array_equal(found[0], outputs(made, None)[0])
        compiled.pop()
        alone = ostinato.InferenceSession(path, cache_dir=None)
        assert session.report()["fingerprint"] == alone.report()["fingerprint"]
        compiled.pop()


@pytest.mark.parametrize("how", ["missing", "short", "link", "outside"])
def test_data_that_is_not_where_it_should_be_is_never_taken(how: str, tmp_path: Path) -> None:
    folder, cache = tmp_path / "models", tmp_path / "cache"
    folder.mkdir()
    path, data = folder / "model.onnx", folder / "w.bin"

    save_apart(GRU, path)
    ostinato.InferenceSession(path, cache_dir=cache)
    save_apart(changed(GRU), path)
    other = tmp_path / "other.bin"
    other.write_bytes(data.read_bytes())
    if how == "short":
        data.write_bytes(data.read_bytes()[:-4])
    elif how in ("missing", "link"):
        data.unlink()
    if how == "link":
        data.symlink_to(other)
    if how == "outside":
        made = onnx.load(path, load_external_data=False)
        for tensor in made.graph.initializer:
            tensor.external_data[0].value = "../other.bin"
        path.write_bytes(made.SerializeToString())
    with pytest.raises(OstinatoError):
        ostinato.InferenceSession(path, cache_dir=cache)
