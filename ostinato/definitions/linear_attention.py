"""LinearAttention as a Scan over time whose step reads the state once."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from ostinato.definitions.function_text import FLOAT, finite, function, size_of
from ostinato.model.attributes import Attributes
from ostinato.model.values import optional_input
from ostinato.records import dataclass

NAMES = ("query", "key", "value", "past", "decay", "beta")


@dataclass(frozen=True)
class _Form:
    """Parameters of the text: attributes and sizes.

    heads, group: heads of keys and values, and heads of queries for each of them.
    decays: decays of each head, 0 without decay. rates: heads of `beta`, 0 without.
    """

    heads: int
    group: int
    key_size: int
    value_size: int
    decays: int
    rates: int
    scale: float
    has_past: bool


def linear_attention(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    """Gated linear attention with the delta rule; None if sizes of heads are not known.

    With the state `S`, the decay `e = exp(g)`, and `d = beta (v - S' (e k))` or `d = v`:

        o = scale ((e q)' S + (q' k) d)      new S = e S + k d'

    (https://onnx.ai/onnx/operators/onnx__LinearAttention.html). The first is `q'` times the new
    state, which however need not be read once more: both products read the old one. Whatever the
    state has no part in leaves the loop. Computed in float32.
    """
    form = _read(node)
    query, past = optional_input(node, 0), optional_input(node, 3)
    if form is None or query is None:
        return None
    types = [query.dtype, query.dtype if past is None else past.dtype]
    lines = [*_operands(form), *_scan(form)]
    for position, (value, dtype) in enumerate(zip(("flat", "last"), types, strict=True)):
        if position < len(node.outputs) and dtype is not None:
            lines.append(f"o{position} = Cast <to = {int(dtype)}> ({value})")
    return function(node, opset, NAMES, lines)


def _read(node: ir.Node) -> _Form | None:
    attributes = Attributes(node)
    heads, queries = attributes.int("kv_num_heads"), attributes.int("q_num_heads")
    rule = attributes.string("update_rule", "gated_delta")
    scale = finite(attributes, "scale", 0.0)
    attributes.int("chunk_size", 64)
    attributes.finish()
    gated, delta = rule in ("gated", "gated_delta"), rule in ("delta", "gated_delta")
    # A size of 0 stands for an operand that the rule does not have.
    sizes = [size_of(optional_input(node, position), -1) for position in (0, 2, 4, 5)]
    width, value_width, decays, rates = (
        size if used else 0 for size, used in zip(sizes, (True, True, gated, delta), strict=True)
    )
    if min(heads, queries) < 1 or queries % heads:
        raise attributes.refuse(f"attributes 'q_num_heads' {queries}, 'kv_num_heads' {heads}")
    if not width or value_width is None or decays is None or rates is None:
        return None
    key_size = width // queries
    if key_size < 1:
        raise attributes.refuse(f"{queries} heads of queries that are {width} wide")
    return _Form(
        heads,
        queries // heads,
        key_size,
        value_width // heads,
        decays // heads,
        rates,
        scale or key_size**-0.5,
        optional_input(node, 3) is not None,
    )


def _operands(form: _Form) -> list[str]:
    """Inputs of the Scan: `[batch, time, heads, rows, columns]` each, and the first state."""
    heads, k, v = form.heads, form.key_size, form.value_size
    lines = [
        *_in_heads("q", "query", heads, form.group, k),
        *_in_heads("k", "key", heads, 1, k),
        *_in_heads("kt", "key", heads, k, 1),
        *_in_heads("v", "value", heads, 1, v),
        "qk = MatMul (q, kt)",
        f"scale = Constant <value_float = {form.scale!r}> ()",
    ]
    if form.decays:
        lines += [
            f"decay_wide = Cast <to = {FLOAT}> (decay)",
            "kept_part = Exp (decay_wide)",
            *_in_heads("e", "kept_part", heads, form.decays, 1),
            *_in_heads("et", "kept_part", heads, 1, form.decays),
            "ke = Mul (k, et)",
            "qe = Mul (q, et)",
        ]
    if form.rates:
        lines += _in_heads("b", "beta", form.rates, 1, 1)
    if form.has_past:
        return [*lines, f"s0 = Cast <to = {FLOAT}> (past)"]
    return [
        *lines,
        "batch = Shape <start = 0, end = 1> (query)",
        f"sizes = Constant <value_ints = [{heads}, {k}, {v}]> ()",
        "s0_shape = Concat <axis = 0> (batch, sizes)",
        "s0 = ConstantOfShape (s0_shape)",
    ]


def _in_heads(result: str, source: str, heads: int, rows: int, columns: int) -> list[str]:
    return [
        f"{result}_wide = Cast <to = {FLOAT}> ({source})",
        f"{result}_shape = Constant <value_ints = [0, 0, {heads}, {rows}, {columns}]> ()",
        f"{result} = Reshape ({result}_wide, {result}_shape)",
    ]


def _scan(form: _Form) -> list[str]:
    """The Scan, whose results are `last`, the state, and `flat [batch, time, outputs]`."""
    keys, queries = ("ke", "qe") if form.decays else ("k", "q")
    scanned = ["v", "kt", "qk", queries, *["e"] * bool(form.decays)]
    step = []
    if form.rates:
        scanned += ["b", keys]
        step += [f"known = MatMul ({keys}_t, s)", "new = Sub (v_t, known)", "d = Mul (b_t, new)"]
    else:
        step += ["d = Identity (v_t)"]
    step += [
        "kept = Mul (s, e_t)" if form.decays else "kept = Identity (s)",
        f"before = MatMul ({queries}_t, s)",
        "now = Mul (qk_t, d)",
        "both = Add (before, now)",
        "y = Mul (scale, both)",
        "added = Mul (kt_t, d)",
        "s_next = Add (kept, added)",
    ]
    elements = ", ".join(f"{name}_t" for name in scanned)
    axes = ", ".join("1" for _ in scanned)
    width = form.heads * form.group * form.value_size
    return [
        f"last, ys = Scan <num_scan_inputs = {len(scanned)}, scan_input_axes = [{axes}],",
        f"scan_output_axes = [1], body = step (s, {elements}) => (s_next, y) {{",
        *step,
        f"}}> (s0, {', '.join(scanned)})",
        f"flat_shape = Constant <value_ints = [0, 0, {width}]> ()",
        "flat = Reshape (ys, flat_shape)",
    ]
