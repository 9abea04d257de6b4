"""Export the networks of `tests/models`: ONNX files, and what PyTorch computes with them.

    python -m tools.export_models [NAME ...]

needs torch, onnxscript and onnx. `NAME.dynamo.onnx` comes from the exporter over torch.export,
`NAME.script.onnx` from the older one over TorchScript. `NAME.npz` holds calls with several sizes:
array `2/in/x` is the input x of the third call, `2/out/y` what PyTorch gave for it.
"""

from __future__ import annotations

import argparse
import inspect
import io
import multiprocessing
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from tools import torch_lists as lists
from tools import torch_models as models
from tools import torch_sequences as sequences

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "models"
OPSETS = {"dynamo": 18, "script": 17}
SEED = 11

Shape = tuple[int | str, ...]
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Input:
    """An input of a network. shape: sizes and names of dynamic dimensions.

    below: for integers, the bound of random values: a number or the name of a dimension. Integers
    bounded by a dimension are lengths: at least 1, falling, the first one the whole dimension.
    is_positive: floats are at least 1 in place of normal.
    """

    shape: Shape
    below: int | str | None = None
    is_positive: bool = False

    def make(self, sizes: Sizes, rng: np.random.Generator) -> Tensor:
        shape = tuple(sizes[size] if isinstance(size, str) else size for size in self.shape)
        if self.below is None:
            values = rng.standard_normal(shape).astype(np.float32)
            return torch.from_numpy(1 + np.abs(values) if self.is_positive else values)
        if isinstance(self.below, int):
            return torch.from_numpy(rng.integers(0, self.below, shape))
        lengths = np.sort(rng.integers(1, sizes[self.below] + 1, shape))[::-1].copy()
        lengths[0] = sizes[self.below]
        return torch.from_numpy(lengths)


@dataclass(frozen=True)
class Network:
    """What to export.

    make: from the name of the exporter to the module. sizes: of the dynamic dimensions, per call.
    """

    make: Callable[[str], nn.Module]
    inputs: Mapping[str, Input]
    outputs: Sequence[str]
    sizes: Sequence[Sizes]
    exporters: Sequence[str] = ("dynamo", "script")


def calls(*names: str) -> list[dict[str, int]]:
    """Sizes of the dimensions `names` for four calls; the first one is what the exporters see."""
    table = {"N": (2, 1, 3, 1), "T": (7, 1, 12, 20), "P": (5, 9, 3, 1)}
    return [{name: table[name][call] for name in names} for call in range(4)]


def recurrent(kind: type[nn.RNNBase], **options: object) -> Network:
    """A network around one of PyTorch's own recurrent modules."""
    rows = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    state = Input((rows, "N", models.WIDTH))
    names = ("h", "c") if kind is nn.LSTM else ("h",)
    make = models.RecurrentLSTM if kind is nn.LSTM else models.Recurrent
    inputs = {"x": Input(("N", "T", 12))} | dict.fromkeys(names, state)
    outputs = ["y", *(f"next_{name}" for name in names)]
    # The newer exporter writes nn.RNN step by step, for one number of steps.
    exporters = ("script",) if kind is nn.RNN else ("dynamo", "script")
    return Network(lambda _: make(kind, **options), inputs, outputs, calls("N", "T"), exporters)


FRAMES = Input(("N", "T", 12))
STATE = Input(("N", 16))
NETWORKS = {
    "rnn": recurrent(nn.RNN),
    "rnn_relu_2_layers": recurrent(nn.RNN, num_layers=2, nonlinearity="relu"),
    "rnn_unrolled": Network(
        lambda _: models.Recurrent(nn.RNN),
        {"x": Input(("N", 7, 12)), "h": Input((1, "N", 16))},
        ["y", "next_h"],
        calls("N"),
        ("dynamo",),
    ),
    "gru": recurrent(nn.GRU),
    "gru_2_layers": recurrent(nn.GRU, num_layers=2),
    "gru_bidirectional": recurrent(nn.GRU, num_layers=2, bidirectional=True),
    "gru_time_first": Network(
        lambda _: models.TimeFirst(nn.GRU, bias=False),
        {"x": Input(("T", "N", 12))},
        ["y"],
        calls("N", "T"),
        ("script",),  # the newer one writes the length it traced with into a Reshape
    ),
    "gru_packed": Network(
        lambda _: sequences.PackedGRU(),
        {"x": FRAMES, "lengths": Input(("N",), below="T")},
        ["y", "last"],
        calls("N", "T"),
        ("script",),
    ),
    "lstm": recurrent(nn.LSTM),
    "lstm_2_layers": recurrent(nn.LSTM, num_layers=2),
    "lstm_bidirectional": recurrent(nn.LSTM, bidirectional=True),
    "lstm_projected": Network(
        lambda _: models.ProjectedLSTM(),
        {"x": FRAMES, "h": Input(("N", 8)), "c": STATE},
        ["y", "next_h", "next_c"],
        calls("N", "T"),
        ("dynamo",),
    ),
    "crnn": Network(
        lambda _: models.CRNN(), {"x": Input(("N", 1, "T", 16))}, ["y"], calls("N", "T")
    ),
    "tcn": Network(lambda _: models.TCN(), {"x": Input(("N", "T", 8))}, ["y"], calls("N", "T")),
    "tcn_streaming": Network(
        lambda _: models.StreamingTCN(),
        {"x": Input(("N", "T", 8)), "past": Input(("N", 16, 14))},
        ["y", "next_past"],
        calls("N", "T"),
    ),
    "conformer_streaming": Network(
        lambda _: models.Conformer(),
        {
            "x": Input(("N", "T", 16)),
            "attention": Input(("N", 6, 16)),
            "convolution": Input(("N", 16, 4)),
            "filled": Input(("N",), below=7),
        },
        ["y", "next_attention", "next_convolution", "next_filled"],
        calls("N", "T"),
    ),
    "mamba": Network(
        lambda exporter: models.Mamba(exporter == "script"),
        {"x": FRAMES, "past": Input(("N", 16, 3)), "state": Input(("N", 16, 4))},
        ["y", "next_past", "next_state"],
        calls("N", "T"),
    ),
    "slstm": Network(
        lambda exporter: sequences.SLSTM(exporter == "script"),
        {"x": FRAMES, "h": STATE, "c": STATE, "n": Input(("N", 16), is_positive=True), "m": STATE},
        ["y", "next_h", "next_c", "next_n", "next_m"],
        calls("N", "T"),
    ),
    "mingru": Network(
        lambda _: sequences.MinGRU(),
        {"x": FRAMES, "h": STATE},
        ["y", "next_h"],
        calls("N", "T"),
        ("dynamo",),
    ),
    "mingru_parallel": Network(
        lambda _: sequences.ParallelMinGRU(),
        {"x": FRAMES, "h": STATE},
        ["y", "next_h"],
        calls("N", "T"),
    ),
    "transducer": Network(
        lambda _: sequences.Transducer(),
        {
            "token": Input(("N", 1), below=20),
            "h": Input((1, "N", 16)),
            "c": Input((1, "N", 16)),
            "encoded": FRAMES,
        },
        ["logits", "next_h", "next_c"],
        calls("N", "T"),
    ),
    "masked_encoder": Network(
        lambda _: sequences.MaskedEncoder(),
        {"x": Input(("N", "T", 16)), "lengths": Input(("N",), below="T")},
        ["y", "y_lengths"],
        calls("N", "T"),
        ("dynamo",),  # the older one writes the batch it traced with into a Reshape
    ),
    "cached_decoder": Network(
        lambda _: sequences.CachedDecoder(),
        {
            "token": Input(("N", "T"), below=20),
            "keys": Input(("N", 2, "P", 8)),
            "values": Input(("N", 2, "P", 8)),
        },
        ["logits", "next_keys", "next_values"],
        calls("N", "T", "P"),
    ),
    # A list that changes its length is a loop over TorchScript's lists to the older exporter alone.
    "list_parser": Network(
        lambda _: lists.StackParser(),
        {"x": Input(("T", 16))},
        ["y", "joined"],
        calls("T"),
        ("script",),
    ),
    "list_segments": Network(
        lambda _: lists.Segments(),
        {"x": Input(("T", 8)), "labels": Input(("T",), below=2)},
        ["largest", "y"],
        calls("T"),
        ("script",),
    ),
    "list_insertion": Network(
        lambda _: lists.Insertion(), {"x": Input(("T", 3))}, ["y"], calls("T"), ("script",)
    ),
    "list_hypotheses": Network(
        lambda _: lists.Hypotheses(),
        {"x": Input(("T", 16))},
        ["tokens", "scores"],
        calls("T"),
        ("script",),
    ),
    "list_tree": Network(
        lambda _: lists.Tree(),
        {
            "x": Input(("N", 16)),
            "left": Input(("P",), below=1),
            "right": Input(("P",), below=1),
        },
        ["root", "nodes"],
        calls("N", "P"),
        ("script",),
    ),
}


def build(network: Network, exporter: str) -> nn.Module:
    """The module with its seeded weights, ready for inference."""
    torch.manual_seed(SEED)
    return network.make(exporter).eval().requires_grad_(False)


def record(network: Network) -> dict[str, np.ndarray]:
    """Inputs and PyTorch's outputs of all calls, by `CALL/in/NAME` and `CALL/out/NAME`."""
    rng = np.random.default_rng(SEED)
    module = build(network, network.exporters[0])
    arrays = {}
    for index, sizes in enumerate(network.sizes):
        given = {name: value.make(sizes, rng) for name, value in network.inputs.items()}
        with torch.no_grad():
            results = module(**given)
        results = (results,) if isinstance(results, Tensor) else results
        arrays |= {f"{index}/in/{name}": value.numpy() for name, value in given.items()}
        pairs = zip(network.outputs, results, strict=True)
        arrays |= {f"{index}/out/{name}": value.numpy() for name, value in pairs}
    return arrays


def export(network: Network, exporter: str) -> onnx.ModelProto:
    """The network as that exporter writes it, without what it notes about this machine."""
    module = build(network, exporter)
    rng = np.random.default_rng(SEED)
    given = {name: value.make(network.sizes[0], rng) for name, value in network.inputs.items()}
    axes = {
        name: {axis: size for axis, size in enumerate(value.shape) if isinstance(size, str)}
        for name, value in network.inputs.items()
    }
    order = list(inspect.signature(module.forward).parameters)
    assert order == list(given), f"inputs are {order}, not {list(given)}"
    options = {"dynamic_shapes": axes} if exporter == "dynamo" else {"dynamic_axes": axes}
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = torch.onnx.export(
            module,
            tuple(given.values()),
            None if exporter == "dynamo" else file,
            input_names=list(given),
            output_names=list(network.outputs),
            opset_version=OPSETS[exporter],
            dynamo=exporter == "dynamo",
            verbose=False,
            **options,
        )
    proto = result.model_proto if exporter == "dynamo" else onnx.load_from_string(file.getvalue())
    forget(proto)
    return proto


def forget(proto: onnx.ModelProto) -> None:
    """Drop stack traces and other notes, which name files of the machine that exported."""
    del proto.metadata_props[:]
    graphs = [proto.graph, *proto.functions]
    while graphs:
        graph = graphs.pop()
        del graph.metadata_props[:]
        graph.ClearField("doc_string")
        if isinstance(graph, onnx.GraphProto):
            for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
                del value.metadata_props[:]
        else:
            for value in graph.value_info:
                del value.metadata_props[:]
        for node in graph.node:
            del node.metadata_props[:]
            node.ClearField("doc_string")
            graphs += [attribute.g for attribute in node.attribute if attribute.HasField("g")]


def write(name: str, exporter: str) -> str:
    """Export one network, and record it where it is the first exporter's turn; a line to print."""
    network = NETWORKS[name]
    if exporter == network.exporters[0]:
        np.savez_compressed(FOLDER / f"{name}.npz", **record(network))
    path = FOLDER / f"{name}.{exporter}.onnx"
    onnx.save(export(network, exporter), path)
    return f"{path.name}: {path.stat().st_size} bytes"


def main() -> None:
    """Export the networks named on the command line, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(NETWORKS), metavar="NAME")
    names = parser.parse_args().names
    jobs = [(name, exporter) for name in names for exporter in NETWORKS[name].exporters]
    # An export changes what a later one in the same process writes.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        for line in pool.map(write, *zip(*jobs, strict=True)):
            print(line)


if __name__ == "__main__":
    main()
