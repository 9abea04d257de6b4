"""Random loops whose states change their sizes, are lists, or are written in place."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from tools.fuzz import loop_states, loop_values
from tools.fuzz.loop_program import KINDS, SHAPES, UPDATES, Array, Program, info, makes
from tools.fuzz.random_graph import Counter

__all__ = ["loop_states", "loop_values", "random_loop"]

OPSET = 18
DEEPEST = 2


@makes("vec")
def _inner_loop(p: Program) -> str:
    return loop(p)[0]["vec"][0] if p.depth < DEEPEST else p.pick_there("vec") or p.weights(p.width)


@makes("rows")
def _inner_rows(p: Program) -> str:
    return loop(p)[0]["rows"][0] if p.depth < DEEPEST else p.pick_there("rows") or p.row()


@makes("vec")
def _inner_scan(p: Program) -> str:
    """A cell over rows."""
    inner = p.inner()
    state, row = inner.names.next(), inner.names.next()
    inner.values["vec"] += [state, row]
    following = inner.layer(state)
    result = inner.add("Tanh", inner.pick("vec"))
    infos = [info(name, "vec", p.width) for name in (state, row)]
    outputs = [info(name, "vec", p.width) for name in (following, result)]
    body = helper.make_graph(inner.nodes, "scan", infos, outputs, inner.constants)
    last, steps = p.add_several("Scan", 2, p.pick("vec"), p.some(), body=body, num_scan_inputs=1)
    p.values["rows"].append(steps)
    return last


def loop(p: Program, trip: str = "") -> tuple[dict[str, list[str]], list[tuple[str, str]]]:
    """A Loop; the last values of its states by kind, and what it collects of which kind."""
    kinds = ["vec", "rows"] + [p.choose(KINDS) for _ in range(p.choose((0, 1, 1, 2, 3)))]
    p.random.shuffle(kinds)
    starts = [p.pick(kind) for kind in kinds]
    body = p.inner()
    number, going = body.names.next(), body.names.next()
    own = [body.names.next() for _ in kinds]
    body.values["number"].append(number)
    for kind, name in zip(kinds, own, strict=True):
        body.values[kind].append(name)
    for _ in range(int(p.random.integers(0, 4))):
        body.new(p.choose(KINDS))
    after = [body.choose(UPDATES[k])(body, name) for k, name in zip(kinds, own, strict=True)]
    collected = [p.choose(("vec", "number", "flag")) for _ in range(p.choose((0, 1, 2)))]
    steps = [body.pick(kind) for kind in collected]
    again = going
    if p.chance(0.4):
        last = body.add("Less", number, body.constant(p.choose((2, 5))))
        again = body.add("Or", last, body.pick("flag")) if p.chance(0.5) else last
    results = [body.add("Identity", name) for name in (again, *after, *steps)]
    all_kinds = ["flag", *kinds, *collected]
    inputs = [
        info(n, k, p.width)
        for n, k in zip((number, going, *own), ("number", *all_kinds[: 1 + len(own)]), strict=True)
    ]
    outputs = [info(n, k, p.width) for n, k in zip(results, all_kinds, strict=True)]
    graph = helper.make_graph(body.nodes, "body", inputs, outputs, body.constants)
    given = trip or (p.below(4) if p.chance(0.6) else p.constant(p.choose((0, 1, 3))))
    first = p.constant(True, "bool") if p.chance(0.5) else ""
    made = p.add_several("Loop", len(results) - 1, given, first, *starts, body=graph)
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for kind, name in zip(kinds, made, strict=False):
        found[kind].append(name)
        p.values[kind].append(name)
    return found, list(zip(made[len(kinds) :], collected, strict=True))


def random_loop(seed: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model with a loop, and its inputs."""
    random = np.random.default_rng(seed)
    p = Program(random, int(random.choice((3, 4, 8, 16))), Counter())
    count = int(random.choice((0, 1, 2, 5)))
    feeds: dict[str, Array] = {
        "x": random.standard_normal(p.width).astype(np.float32),
        "xs": random.standard_normal((count, p.width)).astype(np.float32),
        "steps": np.array(random.choice((0, 1, 2, 5, 9)), np.int64),
    }
    infos = [
        info("x", "vec", p.width),
        helper.make_tensor_value_info("xs", TensorProto.FLOAT, ["N", p.width]),
        info("steps", "number", p.width),
    ]
    for name, kind in (("x", "vec"), ("xs", "rows"), ("steps", "number")):
        p.values[kind].append(name)
    made, collected = loop(p, "steps")
    results = [(name, kind) for kind in KINDS for name in made[kind]]
    outputs = [info(name, kind, p.width) for name, kind in results]
    for name, kind in collected:
        axes = [None, *(p.width for _ in SHAPES[kind][1])]
        outputs.append(helper.make_tensor_value_info(name, SHAPES[kind][0], axes))
    graph = helper.make_graph(p.nodes, f"loop{seed}", infos, outputs, p.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    return model, feeds
