"""Models as WebAssembly: the bits of the native code in wasmtime and in node, and the ES module.

python -m tests.aot.test_webassembly        every case of the tests, in both engines

"""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
import wasmtime

import ostinato
from ostinato.aot import build, webassembly, zig
from ostinato.aot.library import Library, compile_library
from ostinato.errors import OptionError, UnsupportedError
from ostinato.options import Options
from tests.aot import models
from tests.aot.wasm_engines import NODE, Engine, compiled, linked, run_in_node
from tests.cases.case import Case
from tests.cases.table import CASES
from tests.digests import RECORDED, digest

DENOISER = Path(ostinato.__file__).parent / "demo" / "denoiser.onnx"
# Of each kind of arithmetic and of sizes one or two.
NAMES = (
    "GRU-batch LSTM-peepholes RNN-lengths MatMul-float64 Softmax-last Conv-2d "
    "QLinearMatMul QuantizeLinear-int8 DynamicQuantizeLinear RandomNormal TopK NonZero CumSum "
    "keys-of-few-queries int8-blocks"
).split()
STEP = 60


def sampled() -> list[Case]:
    """Every sixtieth case, and those of some names."""
    chosen = {case.name: case for case in CASES[::STEP]}
    for name in NAMES:
        found = next((case for case in CASES if case.name.startswith(name)), None)
        chosen |= {} if found is None else {found.name: found}
    return [case for name, case in chosen.items() if name in RECORDED]


def libraries(cases: Sequence[Case], target: str) -> Iterator[tuple[Case, Library]]:
    """The libraries of those cases that one native function computes."""
    for number, case in enumerate(cases):
        try:
            yield case, compiled(case, number, target)
        except UnsupportedError:
            continue


def mistakes(cases: Sequence[Case], target: str, in_node: bool) -> list[str]:
    """Names of the cases whose outputs have other bits than those that are recorded."""
    pairs = list(libraries(cases, target))
    code = linked([library for _, library in pairs])
    engine, wrong, expected, feeds = Engine(code), [], [], []
    for case, library in pairs:
        given = [case.feeds(sizes) for sizes in case.sizes]
        results = [engine.run(library, one) for one in given]
        if digest(results) != RECORDED[case.name]:
            wrong.append(case.name)
        feeds.append(given)
        expected.append([[array.tobytes() for array in one] for one in results])
    if in_node:
        found = run_in_node(code, [library for _, library in pairs], feeds)
        for (case, library), left, right in zip(pairs, expected, found, strict=True):
            count = len(library.interface.outputs) - len(library.interface.shapes)
            if left != [outputs[:count] for outputs in right]:
                wrong.append(f"{case.name} in node")
    return wrong


def test_cases_have_the_bits_of_native_code():
    assert mistakes(sampled(), "wasm", in_node=True) == []


def test_engines_that_do_not_fuse_compute_the_same_bits():
    chosen = [case for case in sampled() if "float64" not in case.name][::4]
    chosen += [case for case in sampled() if "float64" in case.name]
    assert mistakes(chosen, build.BASELINE, in_node=False) == []


@pytest.mark.parametrize(
    ("dtype", "type_", "powers"),
    [
        (np.float32, "float", [-149, -126, -75, -63, -60, -25, -24, -12, 0, 1, 24, 127]),
        (np.float64, "double", [-1074, -1022, -537, -511, -450, -54, -27, 0, 1, 53, 998, 1023]),
    ],
)
def test_products_are_added_exactly_without_an_instruction_for_it(dtype, type_, powers):
    """`a * b + c` for all a, b, c of some values, where rounding twice goes wrong and where not."""
    last, middle = float(np.finfo(dtype).eps), 2.0 ** -((np.finfo(dtype).nmant + 1) // 2)
    mantissas = 1 + np.array([0, last, middle, 3 * middle / 2, 1 - last, 1 / 3])
    values = np.outer(2.0 ** np.array(powers), mantissas).astype(dtype).ravel()
    values = np.concatenate([values, np.array([0, np.inf, np.nan], dtype)])
    values = np.unique(np.concatenate([values, -values]))
    pairs = np.stack(np.meshgrid(values, values), -1).reshape(-1, 2)
    text = f"""<ir_version: 9, opset_import: ["": 20]>
      sums ({type_}[{len(pairs)}, 2] x, {type_}[2, {len(values)}] w) => ({type_}[N, M] y) {{
        y = MatMul (x, w) }}"""
    model = onnx.parser.parse_model(text)
    feeds = {"x": pairs, "w": np.stack([np.ones_like(values), values])}
    with np.errstate(all="ignore"):
        (expected,) = ostinato.InferenceSession(model).run(None, feeds)
    library = compile_library(model, Options(target=build.BASELINE), "sums", "sums")
    (found,) = Engine(linked([library])).run(library, feeds)
    bits = f"u{found.dtype.itemsize}"
    are_nan = np.isnan(found) & np.isnan(expected)
    assert ((found.view(bits) == expected.view(bits)) | are_nan).all()


# Files and module


@pytest.fixture(scope="module")
def denoiser(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built denoiser."""
    place = tmp_path_factory.mktemp("denoiser")
    ostinato.build(DENOISER, place, "wasm", {"state": "state_out"})
    return place


def node(place: Path, script: str) -> str:
    """What a script prints, which has the module of the denoiser as `library`."""
    (place / "script.mjs").write_text(f"import * as library from './denoiser.mjs';\n{script}")
    done = subprocess.run(
        [NODE, place / "script.mjs"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_code_is_small_beside_its_weights(denoiser):
    weights = 4 * (161 * 64 + 64 + 64 * 288 + 96 * 288 + 2 * 288 + 96 * 161 + 161)
    for file in ("denoiser.wasm", "denoiser.baseline.wasm"):
        assert (denoiser / file).stat().st_size < weights + 60_000


def test_a_stream_computes_what_the_session_does(denoiser):
    frames = np.random.default_rng(0).random((5, 1, 161), np.float32)
    session = ostinato.InferenceSession(DENOISER)
    state = np.zeros((1, 1, 96), np.float32)
    mask, last = session.run(None, {"magnitude": frames, "state": state})
    (denoiser / "frames.bin").write_bytes(frames.tobytes())
    node(
        denoiser,
        """
        import { readFileSync, writeFileSync } from 'node:fs';
        const bytes = readFileSync(new URL('frames.bin', import.meta.url));
        const frames = new Float32Array(new Uint8Array(bytes).buffer);
        const frame = (i) => frames.subarray(161 * i, 161 * i + 161);
        const model = await library.load();
        const stream = model.stream();
        const masks = [];
        for (let i = 0; i < 2; i++) masks.push(stream.step(frame(i)).mask.slice());
        const twin = stream.fork();
        stream.step(frame(0));
        stream.reset();
        stream.load(twin.save());
        twin.close();
        for (let i = 2; i < 4; i++) masks.push(stream.step({ magnitude: frame(i) }).mask.slice());
        stream.inputs.magnitude.set(frame(4));
        masks.push(stream.step().mask.slice(), stream.states.state.slice());
        const whole = model.run({ magnitude: frames });
        const long = model.stream({ time: 5 }).step(frames);
        masks.push(whole.mask, whole.state_out, long.mask);
        const bits = masks.map((one) => Buffer.from(one.slice().buffer));
        writeFileSync(new URL('masks.bin', import.meta.url), Buffer.concat(bits));
        """,
    )
    once = mask.tobytes() + last.tobytes()
    assert (denoiser / "masks.bin").read_bytes() == once + once + mask.tobytes()


def test_weights_may_be_a_file(tmp_path):
    gru = models.gru(), tmp_path, "wasm", models.GRU_STATES, "denoiser"
    files = build.build(*gru, weights="file")
    named = {file.name: file.stat().st_size for file in files}
    assert named["denoiser.weights"] > 0 and named["denoiser.baseline.weights"] > 0
    script = """
        import { readFileSync } from 'node:fs';
        const x = new Float32Array([1, 2, 3, 4, 5]);
        const bytes = readFileSync(new URL('denoiser.weights', import.meta.url));
        const module = await library.compile();
        const models = [await library.load(), await library.load(undefined, bytes)];
        models.push(library.instantiate(module, await library.weights()));
        const bits = models.map((one) => Buffer.from(one.stream().step(x).y.slice().buffer));
        console.log(bits.map((one) => one.toString('hex')).join(' '));
        const damaged = bytes.slice();
        damaged[100] ^= 1;
        const mistakes = [
          () => library.load(undefined, damaged),
          () => library.load(undefined, bytes.subarray(64)),
          async () => library.instantiate(module),
          async () => library.instantiate(module, damaged).stream(),
        ];
        const said = (error) => console.log(error.message);
        for (const mistake of mistakes) await mistake().catch(said);
    """
    found, damaged, short, missing, refused = node(tmp_path, script).splitlines()
    stream = ostinato.InferenceSession(models.gru()).stream(models.GRU_STATES)
    x = np.arange(1, 6, dtype=np.float32).reshape(1, 1, 5)
    assert found.split() == 3 * [stream.step({"x": x})[0].tobytes().hex()]
    assert "are not denoiser.weights of this build" in damaged and "bytes are not" in short
    assert "the weights are missing" in missing and "not the weights of this build" in refused
    assert "export function weights" in (tmp_path / "denoiser.d.ts").read_text()


# A row more in each step, of which the mean is the result.
GROWING = """growing (int64[1] token, float[P, 2] rows) => (float[2] logits, float[Q, 2] more) {
    table = Constant <value = float[5, 2] {0, 1, 2, 3, 4, 5, 6, 7, 8, 9.5}> ()
    row = Gather (table, token) more = Concat <axis = 0> (rows, row)
    zero = Constant <value_ints = [0]> ()
    logits = ReduceMean <keepdims = 0> (more, zero) }"""


def test_states_grow_up_to_the_capacity(tmp_path):
    model, states = models.parsed(GROWING), {"rows": "more"}
    build.build(model, tmp_path, "wasm", states, "denoiser")
    script = """
        const stream = (await library.load()).stream({ 'capacity of P': 3 });
        const step = (token) => stream.step([BigInt(token)]).logits.slice();
        const first = [1, 2, 3].map(step);
        let message;
        try { step(4); } catch (error) { message = error.message; }
        stream.states['length of P'][0] = 2n;
        const again = step(3);
        const kept = [...stream.states.more];
        const bits = [...first, again].map((one) => Buffer.from(one.buffer).toString('hex'));
        console.log(bits.join(' ') + '|' + message + '|' + Object.keys(library.inputs)
            + '|' + kept);
    """
    bits, message, names, kept = node(tmp_path, script).split("|")
    stream = ostinato.InferenceSession(model).stream(states)
    expected = [stream.step({"token": np.array([n])})[0].tobytes().hex() for n in (1, 2, 3)]
    assert bits.split() == [*expected, expected[-1]]
    assert "the rows of axis 'P' exceed" in message and names == "token"
    assert kept == "2,3,4,5,6,7"
    assert "run(" not in (tmp_path / "denoiser.d.ts").read_text()


# Outputs whose sizes are no plain dimensions: an expression, an element of an input, elements that
# are not 0.
MEASURED = """measured (float[T] x, int64 n, float16[2] half, float s)
    => (float[A] twice, float[B, 2] rows, int64[1, C] places, float16[2] same, float s_out) {
    total = Add (x, s) twice = Concat <axis = 0> (total, x)
    one = Constant <value_ints = [1]> () two = Constant <value_ints = [2]> ()
    zero = Constant <value_ints = [0]> () count = Reshape (n, one)
    shape = Concat <axis = 0> (count, two) rows = Expand (s, shape)
    positive = Relu (x) places = NonZero (positive) same = Identity (half)
    s_out = ReduceSum <keepdims = 0> (x, zero) }"""


def test_a_step_returns_what_it_computed_whatever_its_sizes(tmp_path):
    model = models.parsed(MEASURED)
    build.build(model, tmp_path, "wasm", {"s": "s_out"}, "denoiser")
    script = """
        const stream = (await library.load()).stream({ T: 3, n_value: 2 });
        const half = typeof Float16Array === 'function'
          ? new Float16Array([0.5, 2]) : new Uint16Array([0x3800, 0x4000]);
        for (const [x, n] of [[[1, -2, 3], 2], [[4], 1], [[0, 0], 0], [[5, 6, 7], 2n]]) {
          const given = stream.step({ x, n, half });
          const text = (one) => Object.values(one).slice(0, 4).join(';');
          console.log(text(given) + '|' + text(stream.outputs));
        }
        for (const [x, n, other] of [[[1, 2, 3, 4], 1], [[1], 9], [[1], -1], [[1], 1, [2, 3]]]) {
          try {
            stream.step({ x, n, half: other ?? half });
          } catch (error) { console.log(error.message); }
        }
    """
    *lines, many, rows, negative, numbers = node(tmp_path, script).splitlines()
    stream = ostinato.InferenceSession(model).stream({"s": "s_out"})
    half = np.array([0.5, 2], np.float16)
    steps = [([1, -2, 3], 2), ([4], 1), ([0, 0], 0), ([5, 6, 7], 2)]
    for line, (x, n) in zip(lines, steps, strict=True):
        found = stream.step({"x": np.array(x, np.float32), "n": np.array(n), "half": half})
        found[-1] = found[-1].view(np.uint16)
        exact = ";".join(",".join(map("{:g}".format, array.reshape(-1))) for array in found)
        assert line == f"{exact}|{exact}"
    assert "T is 4, and this stream was made for 3" in many
    assert "output rows has sizes [9, 2] here" in rows and "stream({ T: 3, n_value: 9 })" in rows
    assert "is negative" in negative
    assert "expected a Uint16Array for float16[2], got Array" in numbers


def test_no_elements_say_nothing_of_other_sizes(tmp_path):
    text = """g (float[N, 0] none, float[N] x) => (float[N] y, float[N, 0] z) {
        y = Neg (x) z = Neg (none) }"""
    build.build(models.parsed(text), tmp_path, "wasm", name="denoiser")
    script = "console.log((await library.load()).run({ none: [], x: [1, 2] }).y.join())"
    assert node(tmp_path, script) == "-1,-2"


def test_a_posted_module_starts_at_once_where_there_is_no_fetch(denoiser):
    script = """
        import { Worker } from 'node:worker_threads';
        const posted = await library.compile();
        const code = `
          import { instantiate } from '${new URL('denoiser.mjs', import.meta.url)}';
          import { workerData, parentPort } from 'node:worker_threads';
          delete globalThis.fetch; delete globalThis.TextDecoder; delete globalThis.atob;
          const { mask } = instantiate(workerData).stream().step(new Float32Array(161));
          parentPort.postMessage(mask.length);
        `;
        const url = new URL('data:text/javascript,' + encodeURIComponent(code));
        new Worker(url, { workerData: posted }).on('message', (length) => console.log(length));
    """
    assert node(denoiser, script) == "161"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("stream.step(new Float32Array(322))", "time is 2, and this stream was made for 1"),
        ("stream.step(new Float64Array(161))", "expected a Float32Array .* got Float64Array"),
        ("stream.step({ mag: [] })", "there is no input mag; there are magnitude, state"),
        ("stream.load(new Uint8Array(432))", "no saved state of this model"),
        ("model.stream({ tim: 2 })", "there is no size tim; there are time, batch"),
        ("model.run({ magnitude: new Float32Array(160) })", "expected 161 elements"),
        ("model.run({})", "input magnitude is missing"),
        (
            "model.run(new Float32Array(161))",
            r"inputs by name, \{ magnitude: .., state: .. \}, got Float32Array",
        ),
        ("model.run([])", "inputs by name, .* got Array"),
        ("stream.step(Array(161).fill('a'))", "expected a Float32Array .* got Array"),
        ("(stream.close(), stream.step())", "this stream is closed"),
        ("await library.load(new Uint8Array(9))", "these 9 bytes are not denoiser.wasm"),
        ("await library.load(new URL('denoiser.h', import.meta.url))", "not denoiser.wasm"),
        ("await library.load(5)", "expected a URL, bytes, a Response"),
        ("library.instantiate(await WebAssembly.compile(empty))", "this module is another one"),
    ],
)
def test_errors_say_what_is_wrong(denoiser, call, message):
    script = f"""
        const empty = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]);
        const model = await library.load();
        const stream = model.stream();
        try {{ {call}; }} catch (error) {{ console.log(`${{error.name}}: ${{error.message}}`); }}
    """
    import re

    assert re.search(rf"Error: denoiser: .*{message}", node(denoiser, script))


def test_a_damaged_file_is_refused(denoiser):
    script = """
        import { readFileSync } from 'node:fs';
        const bytes = readFileSync(new URL('denoiser.wasm', import.meta.url));
        bytes[bytes.length >> 1] ^= 1;
        try { await library.load(bytes); } catch (error) { console.log(error.message); }
    """
    assert "of this build, or damaged" in node(denoiser, script)


@pytest.mark.parametrize(
    ("lacks", "expected"),
    [
        ("fused multiply-add", "denoiser.baseline.wasm true"),
        ("vectors", "Error: denoiser: this engine has no WebAssembly with 128-bit vectors"),
    ],
)
def test_engines_that_lack_something(denoiser, lacks, expected):
    """What the probes find decides."""
    least = 100 if lacks.startswith("fused") else 0
    script = f"""
        const validate = WebAssembly.validate;
        WebAssembly.validate = (bytes) => bytes.length < {least} && validate(bytes);
        try {{
          const first = async ({{ load }}) =>
            (await load()).stream().step(new Float32Array(161).fill(0.25)).mask.join();
          const slow = await first(library);
          WebAssembly.validate = validate;
          console.log(library.file(), slow === await first(await import('./denoiser.mjs?again')));
        }} catch (error) {{ console.log(`${{error.name}}: ${{error.message}}`); }}
    """
    assert node(denoiser, script).startswith(expected)


def test_the_probes_are_what_they_say():
    simd = "(module (func (drop (v128.const i32x4 0 0 0 0))))"
    fused = """(module (func (export "fuses") (result i32) (i32.and
      (i32x4.all_true (f32x4.relaxed_madd (f32x4.splat (f32.const 0x1.001p0))
        (f32x4.splat (f32.const 0x1.001p0)) (f32x4.splat (f32.const -0x1.002p0))))
      (i64x2.all_true (f64x2.relaxed_madd (f64x2.splat (f64.const 0x1.0000002p0))
        (f64x2.splat (f64.const 0x1.0000002p0)) (f64x2.splat (f64.const -0x1.0000004p0)))))))"""
    for text, probe in ((simd, webassembly.SIMD_PROBE), (fused, webassembly.FUSES_PROBE)):
        assert bytes(wasmtime.wat2wasm(text)) == base64.b64decode(probe)


def test_types_name_every_tensor(denoiser):
    text = (denoiser / "denoiser.d.mts").read_text()
    assert text == (denoiser / "denoiser.d.ts").read_text()
    assert "  magnitude: Float32Array | TensorLike<Float32Array> | readonly number[];" in text
    assert "  state?: Float32Array | TensorLike<Float32Array> | readonly number[];" in text
    assert "step(inputs?: StepInputs | Float32Array | readonly number[]): StepOutputs;" in text


def test_types_name_the_array_of_every_type():
    arrays = {"bool": "Uint8", "float16": "Uint16", "bfloat16": "Uint16", "double": "Float64"}
    arrays |= {f"int{bits}": f"Int{bits}" for bits in (8, 16, 32)} | {"int64": "BigInt64"}
    arrays |= {f"uint{bits}": f"Uint{bits}" for bits in (8, 16, 32)} | {"uint64": "BigUint64"}
    given = ", ".join(f"{type_}[2] i{type_}" for type_ in arrays)
    made = ", ".join(f"{type_}[2] o{type_}" for type_ in arrays)
    copies = " ".join(f"o{type_} = Identity (i{type_})" for type_ in arrays)
    model = models.parsed(f"g ({given}) => ({made}) {{ {copies} }}")
    library = compile_library(model, Options(target="wasm"), "m", "m")
    text = webassembly.declarations(library.interface)
    for type_, array in arrays.items():
        assert f"  readonly o{type_}: {array}Array;" in text


def test_without_a_linker_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(zig.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        OptionError, match=r"WebAssembly module needs .*pip install 'ostinato\[build\]'"
    ):
        ostinato.build(models.gru(), tmp_path, "wasm", shared=True)


if __name__ == "__main__":
    step = 100
    found = []
    for start in range(0, len(CASES), step):
        part = [case for case in CASES[start : start + step] if case.name in RECORDED]
        for target, in_node in (("wasm", True), (build.BASELINE, False)):
            found += [f"{target}: {name}" for name in mistakes(part, target, in_node)]
    print(*found, f"{len(found)} of {len(CASES)} cases have other bits", sep="\n")
    sys.exit(1 if found else 0)
