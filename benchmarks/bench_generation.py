"""Generating: a whole search as one call, and the loops over steps that programs write.

    taskset -c 1 python -m benchmarks.bench_generation [--peers A,B] [--only NAME,..] [--json FILE]

Greedy decoding of one row from one token: the loop as one call, a stream that is stepped, and
onnxruntime's steps with IOBinding, where what a step gave is what the next one is given, without a
copy. `onnxruntime's loop` is the same model as our loop. Then rows with a prompt, which one call of
the step reads, here and there. Then caches of a fixed length, of which a step replaces one place:
streams, and pools of which all streams are stepped, or one half after the other. Then whole
searches of tests/models: the greedy search of an RNN-T over 200 frames, which programs write as a
loop over three sessions, 100 steps of the decoder of Tacotron 2, and beam search over one row as
one Loop. All ways must give the same tokens. The bound is the time to read weights and caches once
for each token, from the cache that holds them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import ostinato
from benchmarks import decoders, harness
from benchmarks.decoders import FOLDER, Decoder
from ostinato.cli.timing import Timing, interleave

Call = Callable[[], Any]
FRAMES, MOST = 200, 3
STEPS = 100
TOKENS, BEAMS = (64, 256, 1024), (4, 8)
PROMPTS, AFTER = (16, 128, 512), 32
PLACES, POOLED, OF_EACH = 1024, (1, 8), 8


@dataclass(frozen=True)
class Row:
    """Timings of the ways to make `count` tokens, frames or steps; `bound` is the least seconds."""

    count: int
    timings: Mapping[str, Timing]
    bound: float | None = None


Rows = dict[str, Row]


def decoder_calls(decoder: Decoder, count: int, folder: Path, wanted: list[str]) -> dict[str, Call]:
    """The ways to generate so many tokens; each returns them."""
    model = decoder.loop()
    path = folder / f"{decoder.path.stem}_loop.onnx"
    onnx.save(model, str(path))
    feeds = {"prompt": decoder.first_tokens(), "max_tokens": np.array(count), **decoder.others}
    session = ostinato.InferenceSession(path, fallback=False)
    calls: dict[str, Call] = {"loop": lambda: session.run(None, feeds)[0][0]}
    if decoder.prompt > 1:
        one_by_one = ostinato.InferenceSession(decoder.loop(prefill=False), fallback=False)
        calls["loop, prompt by tokens"] = lambda: one_by_one.run(None, feeds)[0][0]
    calls["steps"] = our_steps(decoder, count)
    if "onnxruntime" in wanted:
        from ostinato.cli.witness import onnxruntime_session

        calls["onnxruntime's steps"] = their_steps(decoder, count)
        theirs = onnxruntime_session(path)
        calls["onnxruntime's loop"] = lambda: theirs.run(None, feeds)[0][0]
    return calls


def our_steps(decoder: Decoder, count: int) -> Call:
    """A stream with room for all tokens, which is taken back to its beginning in the end."""
    session = ostinato.InferenceSession(decoder.path, fallback=False)
    room = decoder.prompt + count - 1
    stream = session.stream(decoder.states, decoder.empty(), capacity=room)
    given = [decoder.given(number) for number in range(count)]

    def run() -> np.ndarray:
        token, made = decoder.first_tokens(), []
        for feeds in given:
            (logits,) = stream.step({"token": token, **feeds})
            made.append(int(logits[:, -1].argmax()))
            token = np.array([made[-1:]])
        stream.rewind(room)
        return np.array(made)

    return run


def their_steps(decoder: Decoder, count: int) -> Call:
    """onnxruntime with one IOBinding: outputs of a step are bound as inputs of the next one."""
    import onnxruntime

    from ostinato.cli.witness import onnxruntime_session

    session = onnxruntime_session(decoder.path)
    value = onnxruntime.OrtValue.ortvalue_from_numpy
    first = {name: value(array) for name, array in decoder.empty().items()}
    changing = [
        {n: value(a) for n, a in decoder.given(i).items() if n == decoder.counted}
        for i in range(count)
    ]
    fixed = {name: value(array) for name, array in decoder.others.items()}
    names = [output.name for output in session.get_outputs()]
    begin, token = value(decoder.first_tokens()), value(np.ones((1, 1), np.int64))
    tokens = np.ones((1, 1), np.int64)
    run = session._sess.run_with_iobinding

    def generate() -> np.ndarray:
        binding, states, made = session.io_binding(), first, []
        binding.bind_ortvalue_input("token", begin)
        for name, array in fixed.items():
            binding.bind_ortvalue_input(name, array)
        for counted in changing:
            for name, array in (*states.items(), *counted.items()):
                binding.bind_ortvalue_input(name, array)
            for name in names:
                binding.bind_output(name)
            run(binding._iobinding, None)
            results = dict(zip(names, binding.get_outputs(), strict=True))
            states = {name: results[after] for name, after in decoder.states.items()}
            made.append(int(results["logits"].numpy()[:, -1].argmax()))
            tokens[0, 0] = made[-1]
            token.update_inplace(tokens)
            binding.bind_ortvalue_input("token", token)
        return np.array(made)

    return generate


def fixed_calls(decoder: Decoder, streams: int, wanted: list[str]) -> dict[str, Call]:
    """The ways to make some tokens of each stream, whose caches have a fixed length."""
    session = ostinato.InferenceSession(decoder.path, fallback=False)
    pools = [session.pool(decoder.states, capacity=streams) for _ in range(2)]
    handles = [[pool.open() for _ in range(streams)] for pool in pools]
    alone = [session.stream(decoder.states, sizes={"N": 1}) for _ in range(streams)]
    given = [decoder.placed(number) for number in range(OF_EACH)]

    def one_by_one() -> np.ndarray:
        for feeds in given:
            logits = [stream.step(feeds)[0] for stream in alone]
        return np.concatenate(logits)

    def pooled(number: int, parts: int) -> np.ndarray:
        made: dict[int, np.ndarray] = {}
        for feeds in given:
            for part in range(parts):
                for handle in handles[number][part::parts]:
                    pools[number].push(handle, feeds)
                made |= {handle: logits for handle, (logits,) in pools[number].step().items()}
        return np.concatenate([made[handle] for handle in handles[number]])

    calls: dict[str, Call] = {"pool": lambda: pooled(0, 1), "one by one": one_by_one}
    if streams > 1:
        calls["pool, half and half"] = lambda: pooled(1, 2)
    if "onnxruntime" in wanted:
        calls["onnxruntime's batch"] = their_batch(decoder, streams)
    return calls


def their_batch(decoder: Decoder, streams: int) -> Call:
    """onnxruntime with IOBinding, whose streams are always a batch."""
    import onnxruntime

    from ostinato.cli.witness import onnxruntime_session

    session = onnxruntime_session(decoder.path)
    value = onnxruntime.OrtValue.ortvalue_from_numpy
    names = [output.name for output in session.get_outputs()]
    states = {name: value(array) for name, array in decoder.empty(streams).items()}
    given = [
        {name: value(np.repeat(array, streams, 0)) for name, array in decoder.placed(i).items()}
        for i in range(OF_EACH)
    ]

    def generate() -> np.ndarray:
        nonlocal states
        binding = session.io_binding()
        for feeds in given:
            for name, array in {**states, **feeds}.items():
                binding.bind_ortvalue_input(name, array)
            for name in names:
                binding.bind_output(name)
            session._sess.run_with_iobinding(binding._iobinding, None)
            results = dict(zip(names, binding.get_outputs(), strict=True))
            states = {name: results[after] for name, after in decoder.states.items()}
        return results["logits"].numpy()

    return generate


def transducer_calls(wanted: list[str]) -> dict[str, Call]:
    """The greedy search over 200 frames as one call, and as a loop over three sessions."""
    x = np.random.default_rng(0).standard_normal((1, FRAMES, 12), np.float32)
    session = ostinato.InferenceSession(FOLDER / "transducer_search.onnx", fallback=False)
    calls: dict[str, Call] = {"one call": lambda: session.run(None, {"x": x})[0][1:]}
    parts = [FOLDER / f"transducer_{part}.onnx" for part in ("encoder", "predictor", "joint")]
    ours = [ostinato.InferenceSession(part, fallback=False).run for part in parts]
    calls["loop over sessions"] = lambda: transducer_loop(x, *ours)
    if "onnxruntime" in wanted:
        from ostinato.cli.witness import onnxruntime_session

        theirs = [onnxruntime_session(part).run for part in parts]
        whole = onnxruntime_session(FOLDER / "transducer_search.onnx")
        calls["onnxruntime's loop over sessions"] = lambda: transducer_loop(x, *theirs)
        calls["onnxruntime, one call"] = lambda: whole.run(None, {"x": x})[0][1:]
    return calls


def transducer_loop(x: np.ndarray, encode: Any, predict: Any, join: Any) -> np.ndarray:
    """The greedy search in Python: tokens of a frame until one is blank, or there are enough."""
    (encoded,) = encode(None, {"x": x})
    state = np.zeros((1, 1, encoded.shape[2]), np.float32)
    prediction, h, c = predict(None, {"token": np.zeros((1, 1), np.int64), "h": state, "c": state})
    tokens = []
    for t in range(encoded.shape[1]):
        for _ in range(MOST):
            (logits,) = join(None, {"frame": encoded[:, t : t + 1], "prediction": prediction})
            token = int(logits.argmax())
            if token == 0:
                break
            tokens.append(token)
            given = {"token": np.array([[token]]), "h": h, "c": c}
            prediction, h, c = predict(None, given)
    return np.array(tokens)


def tacotron_calls(wanted: list[str]) -> dict[str, Call]:
    """100 steps of the scripted decoder, for a memory at which it does not stop before."""
    path = FOLDER / "tacotron.onnx"
    session = ostinato.InferenceSession(path, fallback=False)
    for seed in range(100):
        memory = np.random.default_rng(seed).standard_normal((3, 20, 12), np.float32)
        feeds = {"memory": memory, "most": np.array(STEPS)}
        if session.run(None, feeds)[0].shape[1] == STEPS:
            break
    calls: dict[str, Call] = {"one call": lambda: _milli(session.run(None, feeds)[0])}
    if "onnxruntime" in wanted:
        from ostinato.cli.witness import onnxruntime_session

        theirs = onnxruntime_session(path)
        calls["onnxruntime, one call"] = lambda: _milli(theirs.run(None, feeds)[0])
    return calls


def beam_calls(
    decoder: Decoder, beams: int, count: int, folder: Path, wanted: list[str]
) -> dict[str, Call]:
    """A search with beams, whose caches change places when beams go on from others."""
    model = ostinato.decoding.loop(
        decoder.path, states=decoder.states, token="token", method="beam", beams=beams
    )
    feeds = {"prompt": np.ones((1, 1), np.int64), "max_tokens": np.array(count)}
    path = folder / "beams.onnx"
    onnx.save(model, str(path))
    session = ostinato.InferenceSession(path, fallback=False)
    calls: dict[str, Call] = {"one call": lambda: session.run(None, feeds)[0]}
    if "onnxruntime" in wanted:
        from ostinato.cli.witness import onnxruntime_session

        theirs = onnxruntime_session(path)
        calls["onnxruntime, one call"] = lambda: theirs.run(None, feeds)[0]
    return calls


def _milli(values: np.ndarray) -> np.ndarray:
    """Spectra that only differ in rounding are the same."""
    return np.round(values, 3) + 0.0


def compared(name: str, calls: Mapping[str, Call], seconds: float) -> dict[str, Timing]:
    """Timings of calls that give the same. Raises `SystemExit` naming one that does not."""
    results = {way: call() for way, call in calls.items()}
    expected = next(iter(results.values()))
    for way, result in results.items():
        if result.shape != expected.shape or not np.allclose(result, expected, atol=2e-3):
            raise SystemExit(f"{name}: {way} gives something else")
    return interleave(calls, seconds, slice_seconds=min(0.01, seconds))


def print_rows(title: str, unit: str, rows: Rows) -> None:
    """Figures per second of each way, and how many times as fast the first one is as the others."""
    ways = list(dict.fromkeys(way for row in rows.values() for way in row.timings))
    if not ways:
        return
    columns = [*ways, *(f"{ways[0]} / {way}" for way in ways[1:]), "of bound"]
    table = harness.table(title, unit, columns)
    for name, row in rows.items():
        speeds = {way: row.count / timing.median for way, timing in row.timings.items()}
        share = "-" if row.bound is None else f"{row.bound * speeds[ways[0]] / row.count:.0%}"
        ratios = [f"{speeds[ways[0]] / speeds[way]:.2f}x" for way in ways[1:] if way in speeds]
        table.add_row(
            name, *(f"{speeds[way]:,.0f}" for way in ways if way in speeds), *ratios, share
        )
    harness.console.print(table)


def main() -> None:
    """Measure and print."""
    parser = harness.parser("generation, a whole search as one call", seconds=1.0)
    parser.set_defaults(peers=["ostinato", "onnxruntime"])
    parser.add_argument("--only", type=lambda text: text.split(","), help="rows, by name")
    parser.add_argument("--tokens", type=int, default=1024, help="of the large decoder, at most")
    harness.add_limits(parser)
    arguments = parser.parse_args()
    wanted, limits = harness.start(arguments), harness.limits(arguments.limits)
    figures: Rows = {}
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        counts = [count for count in TOKENS if count <= arguments.tokens]
        large = decoders.large(where, tokens=counts)
        rows: Rows = {}
        for name, decoder in {"6 layers of 256": large, **decoders.small()}.items():
            for count in decoder.tokens:
                if arguments.only is None or name in arguments.only:
                    calls = decoder_calls(decoder, count, where, wanted)
                    label = f"{name}, {count} tokens"
                    timings = compared(label, calls, arguments.seconds)
                    rows[label] = Row(count, timings, decoder.bound(count, limits))
        prompts: Rows = {}
        for length in PROMPTS if arguments.only is None or "prompts" in arguments.only else ():
            calls = decoder_calls(decoders.large(where, prompt=length), AFTER, where, wanted)
            label = f"prompt of {length}, {AFTER} tokens"
            prompts[label] = Row(AFTER, compared(label, calls, arguments.seconds))
        pooled: Rows = {}
        fixed = decoders.large(where, rows="N", places=PLACES)
        for streams in POOLED if arguments.only is None or "fixed" in arguments.only else ():
            label = f"{streams} of {PLACES} places"
            timings = compared(label, fixed_calls(fixed, streams, wanted), arguments.seconds)
            pooled[label] = Row(streams * OF_EACH, timings)
        searches: Rows = {}
        for beams in BEAMS if arguments.only is None or "beams" in arguments.only else ():
            rows_of_beams = decoders.large(where, rows="N")
            for count in counts[1:2]:
                calls = beam_calls(rows_of_beams, beams, count, where, wanted)
                label = f"{beams} beams, {count} tokens"
                searches[label] = Row(count, compared(label, calls, arguments.seconds))
    print_rows("Greedy decoding of one row", "tokens per second", rows)
    print_rows("6 layers of 256 that read a prompt", "generated tokens per second", prompts)
    print_rows("6 layers of 256, caches of a fixed length", "tokens per second", pooled)
    print_rows("6 layers of 256", "tokens per second, of each beam", searches)
    figures |= {**rows, **prompts, **pooled, **searches}
    for name, unit, count, make in (
        ("RNN-T", "frames per second", FRAMES, transducer_calls),
        ("Tacotron", "steps per second", STEPS, tacotron_calls),
    ):
        if arguments.only is None or name in arguments.only:
            timings = compared(name, make(wanted), arguments.seconds)
            figures[name] = Row(count, timings)
            print_rows(f"{count} {unit.split()[0]}", unit, {name: figures[name]})
    harness.save(arguments.json, {name: asdict(row) for name, row in figures.items()})


if __name__ == "__main__":
    main()
