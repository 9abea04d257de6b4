"""Random loops whose states change their sizes, are lists, or are written in place."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from tools.fuzz import loop_others, loop_states, loop_values
from tools.fuzz.loop_program import (
    COMMON,
    KINDS,
    RARE,
    SHAPES,
    UPDATES,
    Array,
    Program,
    info,
    makes,
)
from tools.fuzz.random_graph import Counter

__all__ = ["loop_others", "loop_states", "loop_values", "random_loop"]

OPSET = 18
DEEPEST = 2


@makes("vec")
def _inner_loop(p: Program) -> str:
    return loop(p)[0]["vec"][0] if p.depth < DEEPEST else p.pick_there("vec") or p.weights(p.width)


@makes("rows")
def _inner_rows(p: Program) -> str:
    return loop(p)[0]["rows"][0] if p.depth < DEEPEST else p.pick_there("rows") or p.row()


# States of a Scan keep their shapes; pieces are taken and put along an axis.
FIXED = ("vec", "vec", "number", "flag", "buffer", "bytes", "halves", "nothing")
PIECES = {"vec": "rows", "number": "ints", "flag": "flags"}


@makes("vec", 2)
def _inner_scan(p: Program) -> str:
    """A cell over rows, and numbers or flags beside them, in all directions and along all axes."""
    fixed = [kind for kind in FIXED if kind in p.kinds]
    kinds = ["vec"] + [p.choose(fixed) for _ in range(p.choose((0, 0, 1, 2)))]
    starts = [p.pick(kind) for kind in kinds]
    rows = p.some()
    read, axes = [rows], [p.choose((0, -2))]
    if p.chance(0.3):
        read, axes = [p.add("Transpose", rows, perm=[1, 0])], [p.choose((1, -1))]
    pieces = ["vec"]
    if p.chance(0.4):
        count = p.count(rows)
        read.append(p.add("Range", p.constant(0), count, p.constant(1)))
        axes.append(0)
        pieces.append("number")
    body = p.inner()
    own = [body.names.next() for _ in (*kinds, *pieces)]
    for kind, name in zip((*kinds, *pieces), own, strict=True):
        body.values[kind].append(name)
    after = [body.choose(UPDATES[k])(body, name) for k, name in zip(kinds, own, strict=False)]
    collected = ["vec"] + [p.choose(fixed) for _ in range(p.choose((0, 0, 1)))]
    results = [body.add("Identity", name) for name in after]
    for kind in collected:
        results.append(body.result(body.pick(kind), results))
    places = [int(p.random.integers(len(SHAPES[kind][1]) + 1)) for kind in collected]
    inputs = [info(n, k, p.width) for n, k in zip(own, (*kinds, *pieces), strict=True)]
    outputs = [info(n, k, p.width) for n, k in zip(results, (*kinds, *collected), strict=True)]
    graph = helper.make_graph(body.nodes, "scan", inputs, outputs, body.constants)
    made = p.add_several(
        "Scan",
        len(results),
        *starts,
        *read,
        body=graph,
        num_scan_inputs=len(read),
        scan_input_axes=axes,
        scan_input_directions=[int(p.chance(0.4)) for _ in read],
        scan_output_axes=places,
        scan_output_directions=[int(p.chance(0.4)) for _ in collected],
    )
    for kind, name in zip(kinds, made, strict=False):
        p.values[kind].append(name)
    for kind, name, place in zip(collected, made[len(kinds) :], places, strict=True):
        if PIECES.get(kind) in p.kinds:
            is_across = kind == "vec" and place == 1
            p.values["columns" if is_across else PIECES[kind]].append(name)
    return made[0]


@makes("vec")
def _loop_in_branch(p: Program) -> str:
    """A loop that runs or does not."""
    if p.depth >= DEEPEST:
        return p.layer(p.pick("vec"))
    return p.branched(
        "vec", lambda inner: loop(inner)[0]["vec"][0], lambda inner: inner.pick("vec")
    )


def loop(p: Program, trip: str = "") -> tuple[dict[str, list[str]], list[tuple[str, str]]]:
    """A Loop; the last values of its states by kind, and what it collects of which kind."""
    kinds = ["vec", "rows"] + [p.choose(p.kinds) for _ in range(p.choose((0, 1, 1, 2, 3)))]
    p.random.shuffle(kinds)
    starts = [p.pick(kind) for kind in kinds]
    body = p.inner()
    number, going = body.names.next(), body.names.next()
    own = [body.names.next() for _ in kinds]
    body.values["number"].append(number)
    for kind, name in zip(kinds, own, strict=True):
        body.values[kind].append(name)
    for _ in range(int(p.random.integers(0, 4))):
        body.new(p.choose(p.kinds))
    after = [body.choose(UPDATES[k])(body, name) for k, name in zip(kinds, own, strict=True)]
    pieces = [kind for kind in ("vec", "number", "flag", "bytes", "buffer") if kind in p.kinds]
    collected = [p.choose(pieces) for _ in range(p.choose((0, 1, 2)))]
    steps = [body.pick(kind) for kind in collected]
    again, is_endless = going, False
    if p.chance(0.4):
        last = body.add("Less", number, body.constant(p.choose((2, 5))))
        is_endless = p.chance(0.4)
        op = "And" if is_endless else "Or"
        again = body.add(op, last, body.pick("flag")) if p.chance(0.5) else last
    results: list[str] = []
    for name in (again, *after, *steps):
        results.append(body.result(name, results))
    all_kinds = ["flag", *kinds, *collected]
    inputs = [
        info(n, k, p.width)
        for n, k in zip((number, going, *own), ("number", *all_kinds[: 1 + len(own)]), strict=True)
    ]
    outputs = [info(n, k, p.width) for n, k in zip(results, all_kinds, strict=True)]
    graph = helper.make_graph(body.nodes, "body", inputs, outputs, body.constants)
    given = trip or (p.below(4) if p.chance(0.6) else p.constant(p.choose((0, 1, 3))))
    first = p.choose(("", p.constant(True, "bool"), p.pick("flag")))
    if is_endless and p.chance(0.6):
        given, first = "", first or p.constant(True, "bool")
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
    p.kinds = COMMON + tuple(kind for kind in RARE if p.chance(0.25))
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
        axes = [None, *(p.width if axis == "width" else axis for axis in SHAPES[kind][1])]
        outputs.append(helper.make_tensor_value_info(name, SHAPES[kind][0], axes))
    graph = helper.make_graph(p.nodes, f"loop{seed}", infos, outputs, p.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    return model, feeds
