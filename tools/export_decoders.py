"""Export the decoders of `tests/models/generation`: ONNX files, and what PyTorch generates.

    python -m tools.export_decoders [NAME ...]

needs torch, onnxscript and onnx. `NAME.onnx` is a step of a decoder, or a whole search that
`torch.jit.script` made a graph of. `NAME.npz` holds calls: array `1/in/prompt` is an input of the
second one. For a step, `1/out/tokens` is what PyTorch's own loop over it chose greedily, and
`1/out/logits` [steps, N, tokens] what it chose from.
"""

from __future__ import annotations

import argparse
import inspect
import io
import multiprocessing
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from tools import torch_decoders as decoders
from tools.export_models import OPSETS, SEED, forget

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "models" / "generation"
GENERATED = 24
"""Tokens of each recorded call."""

Shape = tuple[int | str, ...]
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Decoder:
    """A step: the shapes of its inputs after the token, and which of them a loop fills.

    states: input -> output. counted: the input that is told the position or, if it grows, a mask.
    """

    make: Callable[[], nn.Module]
    inputs: Mapping[str, Shape]
    states: Mapping[str, str]
    counted: str | None = None
    exporter: str = "dynamo"


@dataclass(frozen=True)
class Whole:
    """A network that is called once. sizes: of the dynamic dimensions, per call."""

    make: Callable[[], nn.Module]
    inputs: Mapping[str, Shape]
    outputs: Sequence[str]
    sizes: Sequence[Mapping[str, int]]
    integers: Mapping[str, int] = field(default_factory=dict)
    is_scripted: bool = False


SIZES = [{"N": 2, "P": 3, "S": 5}, {"N": 1, "P": 1, "S": 9}, {"N": 3, "P": 4, "S": 2}]
CACHE: Shape = ("N", decoders.HEADS, "P", decoders.SIZE)
GROUPED: Shape = ("N", decoders.LlamaLayer.GROUPS, "P", decoders.SIZE)
CROSS: Shape = ("N", decoders.HEADS, "S", decoders.SIZE)
STATE: Shape = (1, 1, decoders.WIDTH)
CACHES = ("keys_0", "values_0", "keys_1", "values_1")
STATES = {name: f"next_{name}" for name in CACHES}

NETWORKS: dict[str, Decoder | Whole] = {
    "gpt2": Decoder(
        decoders.GPT2,
        {"position": ("N", 1)} | dict.fromkeys(CACHES, CACHE),
        STATES,
        "position",
    ),
    "llama": Decoder(
        decoders.Llama,
        {"mask": ("N", "Q")} | dict.fromkeys(CACHES, GROUPED),
        STATES,
        "mask",
        "script",
    ),
    "t5": Decoder(
        decoders.T5,
        {"encoded": ("N", "S", decoders.WIDTH)} | dict.fromkeys(CACHES, CACHE),
        STATES,
    ),
    "whisper": Decoder(
        decoders.WhisperDecoder,
        {"position": (1,), "cross_keys": CROSS, "cross_values": CROSS}
        | dict.fromkeys(("keys", "values"), CACHE),
        {"keys": "next_keys", "values": "next_values"},
        "position",
    ),
    "whisper_encoder": Whole(
        decoders.WhisperEncoder,
        {"mel": ("N", 8, "M")},
        ["cross_keys", "cross_values"],
        [{"N": 2, "M": 10}, {"N": 1, "M": 17}, {"N": 3, "M": 4}],
    ),
    "transducer_search": Whole(
        decoders.TransducerSearch,
        {"x": (1, "T", 12)},
        ["tokens", "frames"],
        [{"T": 12}, {"T": 1}, {"T": 60}],
        is_scripted=True,
    ),
    # The same weights as in the search: for a loop over three sessions.
    "transducer_encoder": Whole(
        lambda: decoders.TransducerSearch().encoder,
        {"x": (1, "T", 12)},
        ["encoded"],
        [{"T": 12}, {"T": 1}],
    ),
    "transducer_predictor": Whole(
        lambda: decoders.TransducerSearch().predictor,
        {"token": (1, 1), "h": STATE, "c": STATE},
        ["prediction", "next_h", "next_c"],
        [{}],
        {"token": 3},
    ),
    "transducer_joint": Whole(
        lambda: decoders.TransducerSearch().joint,
        {"frame": STATE, "prediction": STATE},
        ["logits"],
        [{}],
    ),
    "tacotron": Whole(
        decoders.Tacotron,
        {"memory": ("N", "S", 12), "most": ()},
        ["mel", "gates", "alignments"],
        [{"N": 2, "S": 6}, {"N": 1, "S": 11}, {"N": 3, "S": 8}],
        {"most": 40},
        is_scripted=True,
    ),
}


def build(name: str) -> nn.Module:
    """The module with its seeded weights, ready for inference."""
    torch.manual_seed(SEED)
    return NETWORKS[name].make().eval().requires_grad_(False)


def values(network: Decoder | Whole, sizes: Mapping[str, int]) -> dict[str, Tensor]:
    """Random inputs of these sizes; caches and all else that is no integer normal."""
    rng = np.random.default_rng(SEED)
    given = {}
    for name, shape in network.inputs.items():
        extents = [sizes[size] if isinstance(size, str) else size for size in shape]
        if isinstance(network, Whole) and name in network.integers:
            given[name] = torch.full(extents, network.integers[name])
        elif isinstance(network, Decoder) and name == network.counted:
            given[name] = torch.ones(extents, dtype=torch.int64)
        else:
            given[name] = torch.from_numpy(rng.standard_normal(extents).astype(np.float32))
    return given


def generate(
    decoder: Decoder, step: nn.Module, prompt: Tensor, others: dict[str, Tensor]
) -> Arrays:
    """Greedy decoding in PyTorch: the prompt token by token, then `GENERATED` tokens."""
    sizes = {"N": prompt.size(0), "P": 0, "S": 1}
    zeros = values(decoder, sizes | {"Q": 0})
    states = {name: torch.zeros_like(zeros[name]) for name in decoder.states}
    tokens, logits = prompt, []
    for number in range(prompt.size(1) + GENERATED - 1):
        filled = {}
        if decoder.counted is not None:
            shape = decoder.inputs[decoder.counted]
            now = sizes | {"Q": number + 1}
            extents = [now[size] if isinstance(size, str) else size for size in shape]
            filled[decoder.counted] = torch.full(extents, 1 if "Q" in shape else number)
        results = step(token=tokens[:, number : number + 1], **filled, **others, **states)
        states = dict(zip(decoder.states, results[1:], strict=True))
        logits.append(results[0][:, -1])
        if number + 1 >= prompt.size(1):
            tokens = torch.cat([tokens, logits[-1].argmax(1, keepdim=True)], dim=1)
    made = tokens[:, prompt.size(1) :]
    return {"tokens": made.numpy(), "logits": torch.stack(logits).numpy()}


def record(name: str) -> Arrays:
    """Inputs and PyTorch's outputs of all calls, by `CALL/in/NAME` and `CALL/out/NAME`."""
    network, module, arrays = NETWORKS[name], build(name), {}
    rng = np.random.default_rng(SEED)
    for call, sizes in enumerate(SIZES if isinstance(network, Decoder) else network.sizes):
        if isinstance(network, Decoder):
            kept = values(network, sizes | {"Q": 1})
            given = {
                name: kept[name]
                for name in network.inputs
                if name not in network.states and name != network.counted
            }
            prompt = torch.from_numpy(
                rng.integers(0, decoders.VOCABULARY, (sizes["N"], sizes["P"]))
            )
            results = generate(network, module, prompt, given)
            given["prompt"] = prompt
        else:
            given = values(network, sizes)
            made = module(*given.values())
            made = [value.numpy() for value in ((made,) if isinstance(made, Tensor) else made)]
            results = dict(zip(network.outputs, made, strict=True))
        arrays |= {f"{call}/in/{key}": value.numpy() for key, value in given.items()}
        arrays |= {f"{call}/out/{key}": value for key, value in results.items()}
    return arrays


def export(name: str) -> onnx.ModelProto:
    """The network as the exporter writes it, without what it notes about this machine."""
    network, module = NETWORKS[name], build(name)
    if isinstance(network, Decoder):
        sizes = {"N": 2, "P": 3, "Q": 4, "S": 5}
        given = {"token": torch.ones(2, 1, dtype=torch.int64)} | values(network, sizes)
        shapes = {"token": ("N", 1)} | dict(network.inputs)
        outputs, exporter = ["logits", *network.states.values()], network.exporter
    else:
        given, shapes = values(network, network.sizes[0]), dict(network.inputs)
        outputs, exporter = list(network.outputs), "script" if network.is_scripted else "dynamo"
    axes = {
        key: {axis: size for axis, size in enumerate(shape) if isinstance(size, str)}
        for key, shape in shapes.items()
    }
    assert list(inspect.signature(module.forward).parameters) == list(given)
    if isinstance(network, Whole) and network.is_scripted:
        module = torch.jit.script(module)
    proto = write_graph(module, given, axes, outputs, exporter)
    forget(proto)
    return proto


def write_graph(
    module: nn.Module,
    given: Mapping[str, Tensor],
    axes: Mapping[str, Mapping[int, str]],
    outputs: Sequence[str],
    exporter: str,
) -> onnx.ModelProto:
    """What one of PyTorch's exporters makes of a module."""
    is_dynamo = exporter == "dynamo"
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = torch.onnx.export(
            module,
            tuple(given.values()),
            None if is_dynamo else file,
            input_names=list(given),
            output_names=list(outputs),
            opset_version=OPSETS[exporter],
            dynamo=is_dynamo,
            verbose=False,
            **{"dynamic_shapes" if is_dynamo else "dynamic_axes": axes},
        )
    return result.model_proto if is_dynamo else onnx.load_from_string(file.getvalue())


def write(name: str) -> str:
    """Export and record one network; a line to print."""
    FOLDER.mkdir(exist_ok=True)
    np.savez_compressed(FOLDER / f"{name}.npz", **record(name))
    path = FOLDER / f"{name}.onnx"
    onnx.save(export(name), path)
    return f"{path.name}: {path.stat().st_size} bytes"


def main() -> None:
    """Export the networks named on the command line, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(NETWORKS), metavar="NAME")
    names = parser.parse_args().names
    # An export changes what a later one in the same process writes.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        for line in pool.map(write, names):
            print(line)


if __name__ == "__main__":
    main()
