"""Random networks for images of any size: what the other runtimes compute, in every mode.

Convolutions that stride, pad and pool in all ways, transposed ones and Resize, joined with what
came before: as detectors, and as segmentation of images whose height and width are dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tools.fuzz.choosing import Chooser
from tools.fuzz.graphs import Outcome, judged
from tools.fuzz.modes import Array, mode_of
from tools.fuzz.seeds import try_seeds

OPSET = 17
# Pixels along a side.
SIDES = (1, 2, 3, 5, 8, 9, 16, 17, 31, 32)
# From 16 channels on, convolutions compute several positions together.
CHANNELS = (4, 8, 16, 48, 64)


class Network(Chooser):
    """A network under construction. value, channels: what its last node makes."""

    def __init__(self, random: np.random.Generator) -> None:
        super().__init__(random)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.value, self.channels = "x", self.choose((1, 3, 4))
        self.earlier: list[tuple[str, int]] = []

    def weights(self, *shape: int) -> str:
        """The name of random weights of products that stay about as large as the image."""
        scale = np.sqrt(max(np.prod(shape[1:]), 1))
        values = (self.random.standard_normal(shape) / scale).astype(np.float32)
        return self.constant(values)

    def constant(self, values: Array) -> str:
        name = f"w{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def add(self, op: str, *inputs: str, channels: int | None = None, **about: Any) -> None:
        """A node that makes the next value."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **about))
        self.value, self.channels = name, channels or self.channels
        if self.random.random() < 0.5:
            self.earlier.append((self.value, self.channels))

    def convolution(self) -> None:
        """Of windows of all kinds, mostly of 3 x 3 pixels."""
        kernel = [self.choose((1, 2, 3, 3, 3, 5)), self.choose((1, 3, 3, 3, 4))]
        about: dict[str, Any] = {"strides": [self.choose((1, 1, 2, 3)), self.choose((1, 1, 2))]}
        if self.random.random() < 0.2:
            about["auto_pad"] = self.choose(("SAME_UPPER", "SAME_LOWER", "VALID"))
        elif self.random.random() < 0.6:
            about["pads"] = [n // 2 for n in kernel] * 2
        else:
            about["pads"] = [int(self.random.integers(n // 2 + 1)) for n in (*kernel, *kernel)]
        filters = self.choose((*CHANNELS, self.channels))
        weights = self.weights(filters, self.channels, *kernel)
        bias = [self.weights(filters)] if self.random.random() < 0.5 else []
        self.add("Conv", self.value, weights, *bias, channels=filters, **about)

    def depthwise(self) -> None:
        """A convolution of each channel on its own."""
        stride, count = self.choose((1, 2)), self.channels
        about = {"group": count, "pads": [1] * 4, "strides": [stride, stride]}
        self.add("Conv", self.value, self.weights(count, 1, 3, 3), **about)

    def pool(self) -> None:
        """The largest element or the mean, with padding that is given, automatic or left over."""
        side = self.choose((2, 3))
        about: dict[str, Any] = {"kernel_shape": [side, side]}
        about["strides"] = [self.choose((1, 2, 2)), self.choose((1, 2, 2))]
        how = self.choose(("ceil", "same", "pads", "plain"))
        if how == "ceil":
            about["ceil_mode"] = 1
        elif how == "same":
            about["auto_pad"] = self.choose(("SAME_UPPER", "SAME_LOWER"))
        elif how == "pads":
            about["pads"] = [int(self.random.integers(side // 2 + 1)) for _ in range(4)]
        self.add(self.choose(("MaxPool", "AveragePool")), self.value, **about)

    def larger(self) -> None:
        """Twice as high and as wide."""
        if self.random.random() < 0.5:
            filters = self.choose((4, 16, 48))
            weights = self.weights(self.channels, filters, 2, 2)
            self.add("ConvTranspose", self.value, weights, channels=filters, strides=[2, 2])
            return
        scales = self.constant(np.array([1, 1, 2, 2], np.float32))
        mode = self.choose(("nearest", "linear"))
        about = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        self.add("Resize", self.value, "", scales, mode=mode, **about)

    def join(self) -> None:
        """With a value from before, which has as many rows or the network is for no image."""
        if self.earlier:
            value, channels = self.choose(self.earlier)
            if channels == self.channels and self.chance(0.5):
                self.add("Add", self.value, value)
                return
            total = self.channels + channels
            self.add("Concat", self.value, value, axis=1, channels=total)

    def function(self) -> None:
        """Of each element."""
        self.add(self.choose(("Relu", "Sigmoid", "HardSwish")), self.value)


def random_network(seed: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A network and an image."""
    random = np.random.default_rng(seed)
    network = Network(random)
    dims = [network.choose((1, "N")), network.channels]
    dims += [network.choose(("H", "H", 20)), network.choose(("W", "W", 17))]
    sizes = {
        "N": network.choose((1, 2, 2, 5)),
        "H": network.choose(SIDES),
        "W": network.choose(SIDES),
    }
    kinds: list[Callable[[], None]] = [network.convolution] * 3
    kinds += [network.depthwise, network.pool, network.larger, network.join, network.function]
    for _ in range(int(random.integers(2, 7))):
        network.choose(kinds)()
    if not network.nodes:
        network.function()
    results = [network.value]
    if random.random() < 0.3:
        network.add("GlobalAveragePool", network.value)
        results.append(network.value)
    results += [name for name, _ in network.earlier if name not in results and network.chance(0.1)]
    graph = helper.make_graph(
        network.nodes,
        f"images{seed}",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results],
        network.constants,
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    shape = [sizes.get(n, n) for n in dims]
    return model, {"x": random.standard_normal(shape).astype(np.float32)}


def tried(seed: int) -> Outcome:
    """Run one network everywhere; images that are too small for its windows count apart."""
    model, feeds = random_network(seed)
    outcome = judged(model, feeds, mode_of(seed, model, feeds))
    # The oracle takes no windows for none.
    is_small = outcome.kind == "run fails" and "spatial size" in outcome.message
    return outcome.too_small() if is_small else outcome


def run(
    seconds: float, seed: int = 0, count: int | None = None, *, folder: Path | None = None
) -> int:
    """Try networks from `seed` on for so many seconds, or `count` of them; how many fail."""
    assert folder is not None
    return try_seeds(tried, lambda n: random_network(n)[0], seconds, seed, count, folder)
