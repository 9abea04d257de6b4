"""Networks of published shapes with seeded weights: vision, speech, language, series.

    python -m tools.torch_networks FOLDER [NAME ...]

writes NAME.onnx for `benchmarks.bench_networks`; needs torch.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from tools import torch_speech as speech
from tools import torch_transformers as transformers

OPSET = 17


def block(
    inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """Convolution that keeps the size before its stride, and batch normalisation."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    """The basic block of ResNet (He et al. 2015): two convolutions around which the input goes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = block(inputs, outputs, 3, stride), block(outputs, outputs)
        same = stride == 1 and inputs == outputs
        self.around = nn.Identity() if same else block(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.second(functional.relu(self.first(x))) + self.around(x))


class ResNet18(nn.Module):
    """x [N, 3, H, W] -> y [N, 1000]."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [block(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        before = 64
        for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            layers += [Residual(before, width, stride), Residual(width, width, 1)]
            before = width
        self.features, self.head = nn.Sequential(*layers), nn.Linear(512, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).mean((2, 3)))


class Inverted(nn.Module):
    """The block of MobileNetV2 (Sandler et al. 2018): expand, depthwise, project."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = inputs * expansion
        layers = [block(inputs, width, 1), nn.ReLU6()] if expansion > 1 else []
        layers += [block(width, width, 3, stride, width), nn.ReLU6(), block(width, outputs, 1)]
        self.layers, self.adds = nn.Sequential(*layers), stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.adds else self.layers(x)


class MobileNetV2(nn.Module):
    """x [N, 3, H, W] -> y [N, 1000]."""

    # Expansion, channels, blocks, stride of the first.
    SHAPE = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [block(3, 32, 3, 2), nn.ReLU6()]
        before = 32
        for expansion, channels, count, stride in self.SHAPE:
            for number in range(count):
                first = stride if number == 0 else 1
                layers.append(Inverted(before, channels, first, expansion))
                before = channels
        layers += [block(before, 1280, 1), nn.ReLU6()]
        self.features, self.head = nn.Sequential(*layers), nn.Linear(1280, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).mean((2, 3)))


def twice(inputs: int, outputs: int) -> nn.Sequential:
    """Two convolutions, each activated."""
    return nn.Sequential(block(inputs, outputs), nn.ReLU(), block(outputs, outputs), nn.ReLU())


class UNet(nn.Module):
    """U-Net (Ronneberger et al. 2015) of four levels. x [N, 3, H, W] -> y [N, 1, H, W]."""

    WIDTHS = (32, 64, 128, 256)

    def __init__(self) -> None:
        super().__init__()
        pairs = list(zip(self.WIDTHS, self.WIDTHS[1:], strict=False))
        self.down = nn.ModuleList([twice(3, self.WIDTHS[0]), *(twice(a, b) for a, b in pairs)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(b, a, 2, 2) for a, b in pairs])
        self.joined = nn.ModuleList([twice(2 * a, a) for a, _ in pairs])
        self.head = nn.Conv2d(self.WIDTHS[0], 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for number, layer in enumerate(self.down):
            x = layer(functional.max_pool2d(x, 2) if number else x)
            kept.append(x)
        for number in (2, 1, 0):
            x = self.joined[number](torch.cat([kept[number], self.up[number](x)], 1))
        return self.head(x)


class CRNN(nn.Module):
    """CRNN (Shi et al. 2015): an image of a line of text [N, 1, 32, W] -> scores [T, N, 37]."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(1, 64, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2, 2)),
            *(nn.Conv2d(64, 128, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2, 2)),
            *(block(128, 256), nn.ReLU(), nn.Conv2d(256, 256, 3, 1, 1), nn.ReLU()),
            nn.MaxPool2d((2, 2), (2, 1), (0, 1)),
            *(block(256, 512), nn.ReLU(), nn.Conv2d(512, 512, 3, 1, 1), nn.ReLU()),
            nn.MaxPool2d((2, 2), (2, 1), (0, 1)),
            *(nn.Conv2d(512, 512, 2), nn.BatchNorm2d(512), nn.ReLU()),
        )
        self.recurrent, self.head = nn.LSTM(512, 256, 2, bidirectional=True), nn.Linear(512, 37)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.recurrent(self.features(x).squeeze(2).permute(2, 0, 1))[0])


class DeepSpeech2(nn.Module):
    """Deep Speech 2 (Amodei et al. 2015), small. x [N, 1, 161, T] -> [T / 2, N, 29]."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(1, 32, (41, 11), 2, (20, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20)),
            nn.Conv2d(32, 32, (21, 11), (2, 1), (10, 5)),
            *(nn.BatchNorm2d(32), nn.Hardtanh(0, 20)),
        )
        self.recurrent = nn.GRU(32 * 41, 256, 2, bidirectional=True)
        self.head = nn.Linear(512, 29)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.recurrent(self.features(x).flatten(1, 2).permute(2, 0, 1))[0])


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "resnet18": (ResNet18, (1, 3, 224, 224)),
    "resnet18_64": (ResNet18, (1, 3, 64, 64)),
    "mobilenetv2": (MobileNetV2, (1, 3, 224, 224)),
    "unet": (UNet, (1, 3, 128, 128)),
    "crnn": (CRNN, (1, 1, 32, 128)),
    "deepspeech2": (DeepSpeech2, (1, 1, 161, 200)),
    "vit": (transformers.ViT, (1, 3, 224, 224)),
    "bert": (transformers.Bert, (1, 128)),
    "gpt2": (transformers.GPT2, (1, 128)),
    "t5": (transformers.T5, (1, 64)),
    "wav2vec2": (transformers.Wav2Vec2, (1, 16000)),
    "whisper_encoder": (transformers.WhisperEncoder, (1, 80, 400)),
    "dccrn": (speech.DCCRN, (1, 2, 256, 100)),
    "conv_tasnet": (speech.ConvTasNet, (1, 8000)),
    "tcn": (speech.TCN, (1, 8, 256)),
    "demucs": (speech.Demucs, (1, 1, 8532)),
    "conformer": (speech.Conformer, (1, 200, 144)),
    "deepar": (speech.DeepAR, (1, 168, 10)),
    "tft": (speech.TFT, (1, 168, 8)),
}
# Those whose inputs are tokens.
TOKENS = ("bert", "gpt2", "t5")


def write(folder: Path, name: str) -> None:
    """Write NAME.onnx into a folder."""
    make, shape = NETWORKS[name]
    torch.manual_seed(1)
    network = make().eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            # As after training: neither statistics nor scales are those of the first step.
            for values, low, high in (
                (module.running_mean, -0.1, 0.1),
                (module.running_var, 0.5, 1.5),
                (module.weight.data, 0.5, 1.5),
            ):
                values.uniform_(low, high)
    given = torch.randint(0, 1000, shape) if name in TOKENS else torch.randn(shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = folder / f"{name}.onnx"
        torch.onnx.export(
            network, (given,), str(path), dynamo=False, opset_version=OPSET, input_names=["x"]
        )


def main() -> None:
    """Write those named on the command line, or all."""
    parser = argparse.ArgumentParser(description="write networks as ONNX files")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NETWORKS))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or NETWORKS:
        write(arguments.folder, name)


if __name__ == "__main__":
    main()
