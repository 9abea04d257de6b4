"""`ostinato stream`: a model of whole sequences as one that takes them chunk by chunk."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import ostinato
from ostinato.cli import common, stream_check
from ostinato.cli.feeds import declared, make_feeds
from ostinato.cli.stream_check import Arrays, Difference
from ostinato.errors import OptionError
from ostinato.garbage import uncollected

if TYPE_CHECKING:
    from ostinato.runtime.session import InferenceSession
    from ostinato.streaming import Conversion, State
    from ostinato.streaming.convert import Reach

_CHUNKS = (1, 2, 3, 7, 160)
_FRAMES = 400


_Axis = Annotated[
    list[str] | None,
    typer.Option("--axis", metavar="INPUT=AXIS", help="The time axis of an input."),
]
_Time = Annotated[
    str | None,
    typer.Option("--time", metavar="NAME", help="Or: the name of the size of that axis."),
]
_Chunk = Annotated[
    int,
    typer.Option("--chunk", metavar="FRAMES", help="Frames in a step; 0 leaves it open.", min=0),
]
_Context = Annotated[
    str | None,
    typer.Option(
        "--context", metavar="FRAMES", help="Frames that causal attention looks back, or `all`."
    ),
]
_Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="OUT.onnx", help="Write the model.")
]
_Verify = Annotated[
    bool, typer.Option("--verify", help="Compare chunks of several sizes with the whole.")
]


def stream(
    model: common.ModelPath,
    axis: _Axis = None,
    time: _Time = None,
    chunk: _Chunk = 1,
    context: _Context = None,
    output: _Output = None,
    verify: _Verify = False,
    dim: common.Dim = None,
    json: common.Json = False,
    debug: common.Debug = False,
) -> None:
    """Convert a model to work chunk by chunk; with --verify, exit code 1 where bits differ."""
    with common.error_line(debug):
        common.require_writable(output)
        reach = _reach(context)
        with common.status(f"Converting {model.name}"), uncollected():
            import onnx

            from ostinato.streaming import convert, find_states

            when = _time(model, axis, time)
            result = convert(model, when, chunk or None, context=reach)
            kept = {state.input: state.output for state in find_states(model)}
        if output is not None:
            onnx.save(result.model, str(output))
        differences = []
        if verify:
            sizes = common.parse_sizes("--dim", dim)
            with common.status(f"Comparing {model.name} with its steps"):
                differences = _differences(model, when, result, reach, sizes)
    rows = [_state_row(state) for state in result.state_list]
    if json:
        common.print_json(_plain(model, result, rows, differences))
    else:
        _print(model, result, rows, differences)
        for input_, output_ in kept.items():
            common.console().print(
                f"{output_!r} looks like the next {input_!r}: where it is, "
                f"session.stream({{{input_!r}: {output_!r}}}) takes steps of {model.name} itself"
            )
        if output is not None:
            common.console().print(f"saved to {output}", soft_wrap=True)
    wrong = [row.sentence for row in differences if row.wrong]
    if wrong:
        common.fail(wrong)


def _time(model: Path, axis: list[str] | None, name: str | None) -> str | dict[str, int]:
    choices = _choices(model)
    if (name is None) == (not axis):
        listed = ", ".join(choices) or "--axis INPUT=AXIS, --time NAME"
        raise OptionError(f"along which axis does time run? expected one of {listed}")
    if name is not None:
        if choices and f"--time {name}" not in choices:
            raise OptionError(f"--time {name}: no input has such a size: {', '.join(choices)}")
        return name
    found = {}
    for input_, number in common.parse_pairs("--axis", axis, "INPUT=AXIS").items():
        if not number.removeprefix("-").isdecimal():
            raise OptionError(f"--axis {input_}={number}: expected the number of an axis")
        found[input_] = int(number)
    return found


def _choices(model: Path) -> list[str]:
    """Choices for the axis of time in a model: the axis of an input, or the name of a size."""
    inputs = declared(model)
    sizes = dict.fromkeys(size for shape in inputs.values() for size in shape if size)
    return [*(f"--axis {name}=AXIS" for name in inputs), *(f"--time {size}" for size in sizes)]


def _differences(
    model: Path,
    when: str | dict[str, int],
    result: Conversion,
    context: Reach,
    sizes: Mapping[str, int],
) -> list[Difference]:
    """Both models on random input: the converted one with open chunks, and with its own.

    Convolutions have plain sums: Winograd's of a whole and of its steps could differ.
    """
    from ostinato.streaming import convert

    free = convert(model, when, None, context=context)
    session = partial(ostinato.InferenceSession, cache_dir=None, winograd=False)
    whole = session(model)
    feeds = _feeds(whole, free, sizes, context)
    expected = stream_check.runner(whole)(feeds)
    sessions = [(free, [size * free.multiple for size in _CHUNKS])]
    (name, axis), *_ = free.time.items()
    if result.chunk is not None and feeds[name].shape[axis] % result.chunk == 0:
        sessions.append((result, [result.chunk]))
    found = []
    for conversion, chunks in sessions:
        step = stream_check.runner(session(conversion.model))
        for size in chunks:
            parts = list(stream_check.step_by_step(step, conversion, feeds, size))
            found += stream_check.compare(expected, parts, conversion, size)
    return found


def _reach(text: str | None) -> Reach:
    if text is None:
        return None
    if text == "all":
        return "all"
    if not text.isdecimal():
        raise OptionError(f"--context is {text!r}, expected a number of frames or all")
    return int(text)


def _feeds(
    session: InferenceSession, conversion: Conversion, sizes: Mapping[str, int], context: Reach
) -> Arrays:
    """Random input of about 400 frames, a multiple of what a step needs.

    No more than attention can look back: the whole model sees all of them.
    """
    most = context if isinstance(context, int) else _FRAMES
    frames, unit = min(_FRAMES, most), conversion.multiple
    frames = max(frames // unit, 1) * unit
    known = dict(sizes)
    for argument in session.get_inputs():
        axis = conversion.time.get(argument.name)
        size = None if axis is None or argument.shape is None else argument.shape[axis]
        if isinstance(size, str):
            known.setdefault(size, frames)
    return make_feeds(session.get_inputs(), {}, known)


def _state_row(state: State) -> dict[str, Any]:
    low, high = float(state.initial.min(initial=0)), float(state.initial.max(initial=0))
    initial = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    return {
        "input": state.input,
        "output": state.output,
        "type": str(state.dtype),
        "shape": list(state.shape),
        "initial": initial,
        "node": state.node,
        "purpose": state.purpose,
    }


def _plain(
    model: Path,
    result: Conversion,
    rows: list[dict[str, Any]],
    differences: list[Difference],
) -> dict[str, Any]:
    return {
        "model": str(model),
        "chunk": result.chunk,
        "multiple": result.multiple,
        "latency": result.latency,
        "states": rows,
        "outputs": [
            {"name": name, "axis": t.axis, "rate": str(t.rate), "delay": t.delay}
            for name, t in result.outputs.items()
        ],
        "notes": [{"node": n.node, "op": n.op, "text": n.text} for n in result.notes],
        "verified": [vars(row) for row in differences],
    }


def _print(
    model: Path,
    result: Conversion,
    rows: list[dict[str, Any]],
    differences: list[Difference],
) -> None:
    console = common.console()
    states = common.table(
        f"{model.name}: states", "input", "output", "type", "shape", "initial", "purpose", left=6
    )
    for row in rows:
        shape = common.format_shape(row["shape"])
        states.add_row(
            row["input"], row["output"], row["type"], shape, row["initial"], row["purpose"]
        )
    common.show(states)
    outputs = common.table("Outputs", "output", "time axis", "frames per input frame", "delay")
    for name, timing in result.outputs.items():
        axis = "-" if timing.axis is None else str(timing.axis)
        outputs.add_row(name, axis, str(timing.rate), str(timing.delay))
    common.show(outputs)
    length = f"any multiple of {result.multiple}" if result.chunk is None else str(result.chunk)
    console.print(f"chunk: {length}; latency: {result.latency} (input frames)")
    for note in result.notes:
        console.print(f"{note.node} ({note.op}): {note.text}")
    if differences:
        checked = common.table("Steps against the whole", "output", "chunk", "frames", "", left=1)
        for found in differences:
            verdict = "same bits" if not found.wrong else f"differs by {found.max_abs:.3g}"
            chunk = f"{found.chunk} alone" if found.fixed else str(found.chunk)
            frames = (
                str(found.frames) if result.outputs[found.output].axis is not None else "last value"
            )
            checked.add_row(found.output, chunk, frames, verdict)
        common.show(checked)
