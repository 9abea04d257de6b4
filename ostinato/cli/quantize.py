"""`ostinato quantize`: a model with fewer bytes, and what that costs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import ostinato
from ostinato.cli import common, timing
from ostinato.cli.feeds import feeds_of
from ostinato.errors import InputError, OptionError
from ostinato.garbage import uncollected

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from ostinato.quantization import Layer

    Samples = list[dict[str, np.ndarray]]

_SECONDS = 1.0
# Several steps of random inputs: the first one alone would multiply some weights with zeros only.
_STEPS = 16


_Output = Annotated[
    Path, typer.Option("-o", "--output", metavar="OUT.onnx", help="Where to write the model.")
]
_Weights = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="TYPE",
        help="int8, int4, bf16, f16 (default int8; with --target-snr int4).",
    ),
]
_Activations = Annotated[
    str | None,
    typer.Option("--activations", metavar="TYPE", help="int8-dynamic or int8-static."),
]
_Calibration = Annotated[
    Path | None,
    typer.Option("--calibration", metavar="FILE.npz", help="Inputs to calibrate and measure."),
]
_Exclude = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="PATTERN", help="Nodes or weights to leave alone."),
]
_Block = Annotated[
    int | None, typer.Option("--block", metavar="N", help="Terms of a sum that share a scale.")
]
_TargetSnr = Annotated[
    float | None,
    typer.Option("--target-snr", metavar="DB", help="Choose types by layer; measure SNR."),
]
_State = Annotated[
    list[str] | None,
    typer.Option("--state", metavar="INPUT=OUTPUT", help="A state that samples pass on."),
]
_Verify = Annotated[bool, typer.Option("--verify", help="Measure SNR of outputs, bytes and speed.")]
_Dim = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="NAME=SIZE",
        help="Size of a named dimension (default 1; 16 for steps of loops).",
    ),
]


def quantize(
    model: common.ModelPath,
    output: _Output,
    weights: _Weights = None,
    activations: _Activations = None,
    calibration: _Calibration = None,
    exclude: _Exclude = None,
    block: _Block = None,
    target_snr: _TargetSnr = None,
    state: _State = None,
    verify: _Verify = False,
    dim: _Dim = None,
    json: common.Json = False,
    debug: common.Debug = False,
) -> None:
    """Write a model with narrow weights; types by layer, SNR per output where it is measured."""
    with common.error_line(debug):
        common.require_writable(output)
        with common.status(f"Reading {model.name}"), uncollected():
            import onnx

            from ostinato.quantization import quantize_layers

        states = common.parse_pairs("--state", state, "INPUT=OUTPUT")
        samples = None
        if calibration is not None or verify or target_snr is not None:
            samples = _samples(model, calibration, states, common.parse_sizes("--dim", dim))
        elif dim:
            raise OptionError("--dim: sizes are for random inputs, of --verify or --target-snr")
        with common.status(f"Quantising {model.name}"), _told_in_lines():
            result = quantize_layers(
                model,
                weights or ("int8" if target_snr is None or activations else "int4"),
                activations,
                calibration=None if calibration is None else samples,
                measure_on=samples,
                exclude=exclude or (),
                block=block,
                target_snr=target_snr,
                states=states,
            )
        onnx.save(result.model, str(output))
        report: dict[str, Any] = {
            "model": str(model),
            "output": str(output),
            "bytes": {"before": _file_bytes(model), "after": _file_bytes(output)},
            "layers": [vars(layer) for layer in result.layers],
        }
        if verify or target_snr is not None:
            assert samples is not None
            report |= _verified(model, result.model, samples, states, is_timed=verify)
            report["data"] = "random" if calibration is None else str(calibration)
    if json:
        common.print_json(report)
    else:
        _print(model, output, result.layers, report)


@contextmanager
def _told_in_lines() -> Iterator[None]:
    """Warnings about weights are lines of their own on stderr, behind what runs meanwhile."""
    from ostinato.quantization import UnreachedWeights

    with warnings.catch_warnings(record=True) as found:
        yield
    for each in found:
        if issubclass(each.category, UnreachedWeights):
            common.error_console().print(f"warning: {each.message}", soft_wrap=True)
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def _file_bytes(model: Path) -> int:
    """Bytes of a model's file and of those beside it that have its weights."""
    import onnx_ir as ir

    values = [v for graph in ir.load(model).graphs() for v in graph.initializers.values()]
    tensors = (value.const_value for value in values)
    files = {Path(t.path) for t in tensors if isinstance(t, ir.ExternalTensor)}
    return sum(file.stat().st_size for file in {model, *files})


def _samples(
    model: Path, calibration: Path | None, states: dict[str, str], sizes: dict[str, int]
) -> Samples:
    """The samples of the file, or one of random inputs with a fixed seed."""
    from ostinato.quantization.samples import read_samples

    session = common.open_session(model, common.make_options(None, False, True))
    if calibration is not None:
        return read_samples(calibration, session.get_inputs(), states)
    looped = {kernel["in_loop"] for kernel in session.report()["kernels"]}
    named = {dim for argument in session.get_inputs() for dim in argument.shape or ()}
    try:
        return [feeds_of(session, {}, dict.fromkeys(looped & named, _STEPS) | sizes)]
    except InputError:
        return [feeds_of(session, {}, sizes)]


def _verified(
    model: Path,
    narrow: onnx.ModelProto,
    samples: Samples,
    states: dict[str, str],
    *,
    is_timed: bool,
) -> dict[str, Any]:
    """SNR of each output over the samples, and the median seconds of a call with the first one.

    is_timed: whether there are calls to time.
    """
    from ostinato.quantization.samples import outputs_of, signal_to_noise, with_states

    options = common.make_options(None, False, True)
    sessions = {"before": common.open_session(model, options)}
    with common.status("Compiling the quantised model"):
        sessions["after"] = ostinato.InferenceSession(narrow, options)
    with common.status(f"Running {len(samples)} samples"):
        results = {
            name: list(outputs_of(session, samples, states)) for name, session in sessions.items()
        }
    snr = signal_to_noise(results["before"], results["after"])
    if not is_timed:
        return {"snr": snr}
    feeds = with_states(samples[0], sessions["before"], states)
    calls = {name: (lambda run=session.run: run(None, feeds)) for name, session in sessions.items()}
    with common.progress() as bar:
        task = bar.add_task("Measuring", total=1.0)
        times = timing.interleave(
            calls, _SECONDS, on_round=lambda share: bar.update(task, completed=share)
        )
    return {
        "snr": snr,
        "seconds": {name: each.median for name, each in times.items()},
    }


def _print(model: Path, output: Path, layers: tuple[Layer, ...], report: dict[str, Any]) -> None:
    console = common.console()
    table = common.table(
        f"{model.name} as {output.name}",
        "node",
        "weights",
        "type",
        "before",
        "after",
        "SNR alone",
        left=3,
    )
    for layer in layers:
        sizes = (common.format_bytes(size) for size in (layer.before, layer.after))
        snr = "-" if layer.snr is None else f"{layer.snr:.1f} dB"
        table.add_row(layer.name, layer.weights, layer.type, *sizes, snr)
    common.show(table)
    unmeasured = [layer.name for layer in layers if layer.snr is None]
    if "snr" in report and unmeasured:
        console.print(
            f"inputs do not reach {', '.join(unmeasured)}: give others, by --dim or --calibration",
            soft_wrap=True,
            markup=False,
        )
    if "snr" in report:
        outputs = common.table(
            f"Against float weights ({report['data']} inputs)", "output", "SNR, dB"
        )
        for name, value in report["snr"].items():
            outputs.add_row(name, f"{value:.1f}")
        common.show(outputs)
    costs = common.table("Cost", "", "before", "after", "ratio")
    size = report["bytes"]
    costs.add_row(
        "file",
        *(common.format_bytes(size[when]) for when in ("before", "after")),
        f"{size['before'] / size['after']:.2f}",
    )
    if "seconds" in report:
        seconds = report["seconds"]
        costs.add_row(
            "call",
            *(common.format_seconds(seconds[when]) for when in ("before", "after")),
            f"{seconds['before'] / seconds['after']:.2f}",
        )
    common.show(costs)
    console.print(f"saved to {output}", soft_wrap=True)
