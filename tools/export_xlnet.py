"""Export one attention layer of XLNet, whose relative shift picks columns by `index_select`.

    python -m tools.export_xlnet FILE [--exporter script] [--sequence 512]

needs torch, transformers, onnxscript and onnx. The layer is the one of transformers with random
weights: one sequence, content stream, no mask, no segments, no memory. With `--exporter script`
lengths stay open; the newer exporter writes them as numbers. `python -m benchmarks.bench_relshift
--xlnet FILE` measures it. Beside `FILE`, `FILE` with the suffix `.pt` is the layer as a TorchScript
module, so that the benchmark can run it without transformers.
"""

from __future__ import annotations

import argparse
import io
import warnings
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn
from transformers import XLNetConfig
from transformers.models.xlnet.modeling_xlnet import XLNetRelativeAttention

from tools.export_models import OPSETS, SEED, forget


class Layer(nn.Module):
    """h [T, 1, width], positions [2 T, 1, width] -> y [T, 1, width]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        config = XLNetConfig(d_model=width, n_head=heads, n_layer=1, d_inner=width)
        self.attention = XLNetRelativeAttention(config)
        for name, parameter in self.attention.named_parameters():
            if not name.startswith("layer_norm"):
                nn.init.normal_(parameter, std=width**-0.5)

    def forward(self, h: Tensor, positions: Tensor) -> Tensor:
        return self.attention(h, None, None, None, positions, None)[0]


def layer(width: int, heads: int) -> nn.Module:
    """The layer with its seeded weights, ready for inference."""
    torch.manual_seed(SEED)
    return Layer(width, heads).eval().requires_grad_(False)


def export(module: nn.Module, given: tuple[Tensor, Tensor], exporter: str) -> onnx.ModelProto:
    """The layer as that exporter writes it."""
    file = io.BytesIO()
    is_script = exporter == "script"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = torch.onnx.export(
            module,
            given,
            file if is_script else None,
            input_names=["h", "positions"],
            output_names=["y"],
            opset_version=OPSETS[exporter],
            dynamo=not is_script,
            verbose=False,
            **({"dynamic_axes": {"h": {0: "T"}, "positions": {0: "P"}}} if is_script else {}),
        )
    proto = onnx.load_from_string(file.getvalue()) if is_script else result.model_proto
    forget(proto)
    return proto


def main() -> None:
    """Export to the file named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--exporter", choices=sorted(OPSETS), default="script")
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=8)
    arguments = parser.parse_args()
    module = layer(arguments.width, arguments.heads)
    given = tuple(torch.randn(factor * arguments.sequence, 1, arguments.width) for factor in (1, 2))
    onnx.save(export(module, given, arguments.exporter), arguments.file)
    torch.jit.trace(module, given).save(arguments.file.with_suffix(".pt"))
    print(f"{arguments.file}: {arguments.file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
