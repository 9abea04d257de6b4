"""One node of a domain of onnxruntime, drawn by the recipe of its operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from ostinato.model.contributed import BLOCKED, MICROSOFT, register_contributed
from tools.fuzz.random_node import Array, Drawer, Drawn, Shape, registering

OPSETS = (11, 12, 13, 17, 18, 21)


@dataclass
class Contributed(Drawn):
    """A node of a domain. fixed: operands that are always constants; reorders: images in blocks."""

    fixed: Sequence[int] = ()
    domain: str = MICROSOFT
    channels: int = 0


Recipe = Callable[[Drawer], Contributed]
RECIPES: list[tuple[int, Recipe]] = []


contributed = registering(RECIPES)


def scale(d: Drawer, *shape: int) -> Array:
    """Powers of two, with which nothing is rounded but results."""
    return np.asarray(2.0 ** d.random.integers(-5, 1, shape), np.float32)


def maybe(d: Drawer, array: Array, chance: float = 0.5) -> Array | None:
    """The array, or nothing."""
    return array if d.chance(chance) else None


def real(d: Drawer, dtype: str, *shape: int) -> Array:
    """Numbers around 0 that no rounding makes equal."""
    drawn = d.random.standard_normal(shape) * d.choose((0.5, 1, 2))
    return np.asarray(drawn).astype(dtype)


def random_contributed(seed: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of one node, and its inputs."""
    register_contributed()
    random = np.random.default_rng(seed)
    while True:
        drawer = Drawer(random, int(random.choice(OPSETS)))
        try:
            return _model(drawer, drawer.weighed(RECIPES)(drawer), f"node{seed}")
        except LookupError:
            continue


def _model(d: Drawer, drawn: Contributed, name: str) -> tuple[onnx.ModelProto, dict[str, Array]]:
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(drawn.operands)]
    while names and not names[-1]:
        names.pop()
    results = [f"y{i}" for i in range(drawn.outputs)]
    node = helper.make_node(drawn.op, names, results, name="node", domain=drawn.domain)
    node.attribute.extend(helper.make_attribute(*item) for item in drawn.attributes.items())
    nodes = [node] if drawn.domain != BLOCKED else _reordered(node, drawn)
    feeds, infos, constants = {}, [], []
    share, is_open = d.choose((0.0, 0.5, 1.0)), d.chance(0.4)
    for place, (at, array) in enumerate(zip(names, drawn.operands, strict=False)):
        if array is None:
            continue
        if place in drawn.fixed or (place and d.chance(share)):
            constants.append(numpy_helper.from_array(np.asarray(array), at))
            continue
        feeds[at] = array
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        sizes = [f"{at}_{i}" if is_open and d.chance(0.5) else n for i, n in enumerate(array.shape)]
        infos.append(helper.make_tensor_value_info(at, kind, sizes))
    outputs = [helper.make_empty_tensor_value_info(result) for result in results]
    graph = helper.make_graph(nodes, name, infos, outputs, constants)
    opsets = [helper.make_opsetid("", d.opset)]
    opsets += [helper.make_opsetid(domain, 1) for domain in (MICROSOFT, BLOCKED)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    inferred = shape_inference.infer_shapes(model)
    for output, found in zip(graph.output, inferred.graph.output, strict=True):
        kind = found.type.tensor_type.elem_type
        output.CopyFrom(helper.make_tensor_value_info(output.name, kind or 1, None))
    model.graph.CopyFrom(graph)
    return model, feeds


def _reordered(node: onnx.NodeProto, drawn: Contributed) -> list[onnx.NodeProto]:
    """The node between the two that put images into blocks and take them out."""
    source, (result,) = node.input[0], node.output
    node.input[0], node.output[0] = "blocks", "made"
    nodes = [helper.make_node("ReorderInput", [source], ["blocks"], domain=BLOCKED), node]
    about: dict[str, Any] = {"channels": drawn.channels, "domain": BLOCKED}
    return [*nodes, helper.make_node("ReorderOutput", ["made"], [result], **about)]


def windows(d: Drawer, rank: int, kernel: Sequence[int], dilated: bool = True) -> dict[str, Any]:
    """Attributes of windows; padding is less than they are wide."""
    about: dict[str, Any] = {}
    if d.chance(0.6):
        about["strides"] = [d.choose((1, 1, 2, 3)) for _ in range(rank)]
    if dilated and d.chance(0.3):
        about["dilations"] = [d.choose((1, 2)) for _ in range(rank)]
    # onnxruntime pads dilated windows of pools as if they had no gaps.
    if "dilations" not in about and d.chance(0.2):
        about["auto_pad"] = d.choose(("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"))
    elif d.chance(0.6):
        about["pads"] = [d.number(0, max(0, k - 1)) for k in (*kernel, *kernel)]
    return about


def image(d: Drawer, channels: int, rank: int) -> Shape:
    """Sizes of images."""
    return (d.number(1, 2), channels, *[d.number(5, 9) for _ in range(rank)])
