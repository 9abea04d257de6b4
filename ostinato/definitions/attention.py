"""Attention as two matrix products around a softmax, without copies of shared heads."""

from __future__ import annotations

import math

import onnx
import onnx_ir as ir

from ostinato.definitions.function_text import FLOAT, finite, function, size_of, wanted
from ostinato.model.attributes import Attributes
from ostinato.model.values import optional_input
from ostinato.records import dataclass

NAMES = ("query", "key", "value", "mask", "past_key", "past_value", "lengths")
_SHOWN = ("raw", "capped", "scores", "seen")
_DOUBLE = int(ir.DataType.DOUBLE)


@dataclass(frozen=True)
class _Form:
    """Parameters of the text: attributes, ranks and sizes.

    heads, group: heads of keys and values, and heads of queries for each of them.
    size, value_size: of a head, -1 where only a run knows; read where heads are packed.
    packed: the heads are side by side on the last axis.
    mask: "none", "bool" or "float". short_mask: it may end before the keys do.
    bounds: how far a row sees to the left and to the right, None for all the way.
    shown: which intermediate value is an output as well.
    """

    heads: int
    group: int
    size: int
    value_size: int
    packed: bool
    scale: float | None
    softcap: float
    mask: str
    short_mask: bool
    bounds: tuple[int | None, int | None]
    has_past: bool
    has_lengths: bool
    softmax_type: int | None
    shown: int | None


def attention(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    """Scaled dot product attention; None where ranks, types or numbers of heads are not known.

        S = softcap((scale Q) K') + bias      Y = softmax(S) V

    (https://onnx.ai/onnx/operators/onnx__Attention.html). The bias is the mask, and minus infinity
    where a key must not be seen; a row that sees no key is zero. Heads that share keys are one more
    axis of the products. Computed in float32, or wider where the operands are.
    """
    form = _read(node)
    query, value = optional_input(node, 0), optional_input(node, 2)
    if form is None or query is None or query.dtype is None or value is None or value.dtype is None:
        return None
    wide = _DOUBLE if query.dtype == ir.DataType.DOUBLE else FLOAT
    lines = [*_operands(form, wide), *_scores(form, wide), *_bias(form, wide), *_result(form)]
    results = {0: ("y", query), 1: ("keys", query), 2: ("values", value)}
    if form.shown is not None:
        results[3] = (_SHOWN[form.shown], query)
    for position, (name, like) in results.items():
        if wanted(node, position):
            assert like.dtype is not None
            lines.append(f"o{position} = Cast <to = {int(like.dtype)}> ({name})")
    return function(node, opset, NAMES, lines)


def _read(node: ir.Node) -> _Form | None:
    attributes = Attributes(node)
    q_heads, heads = (attributes.int(f"{letter}_num_heads", None) for letter in ("q", "kv"))
    scale, softcap = finite(attributes, "scale", None), finite(attributes, "softcap", 0.0)
    causal = attributes.int("is_causal", 0)
    left, right = (attributes.int(f"{side}_window_size", -1) for side in ("left", "right"))
    softmax_type = attributes.int("softmax_precision", None)
    shown = attributes.int("qk_matmul_output_mode", 0)
    if not 0 <= shown < len(_SHOWN):
        raise attributes.refuse(f"attribute 'qk_matmul_output_mode' is {shown}, expected 0 to 3")
    attributes.finish()
    query, key, value, mask, past = (optional_input(node, position) for position in range(5))
    if query is None or query.shape is None or (mask is not None and mask.shape is None):
        return None
    packed = len(query.shape) == 3
    if not packed:
        q_heads, heads = size_of(query, 1), size_of(key, 1)
    if not q_heads or not heads or q_heads % heads:
        return None
    widths = [(query, q_heads), (key, heads)] if packed else [(query, 1), (key, 1)]
    size = _of_head(*widths, (past, 1))
    if size == 0:
        return None
    keys = size_of(key, -2)
    before = 0 if past is None else size_of(past, -2)
    total = None if keys is None or before is None else keys + before
    kind = "none" if mask is None else "bool" if mask.dtype == ir.DataType.BOOL else "float"
    bounds = (left if left >= 0 else None, 0 if causal else right if right >= 0 else None)
    return _Form(
        heads=heads,
        group=q_heads // heads,
        size=size,
        value_size=_of_head((value, heads if packed else 1), (optional_input(node, 5), 1)),
        packed=packed,
        scale=1 / math.sqrt(size) if scale is None and size > 0 else scale,
        softcap=softcap or 0.0,
        mask=kind,
        short_mask=mask is not None and (total is None or size_of(mask, -1) != total),
        bounds=bounds,
        has_past=past is not None,
        has_lengths=optional_input(node, 6) is not None,
        softmax_type=softmax_type,
        shown=shown if wanted(node, 3) else None,
    )


def _of_head(*widths: tuple[ir.Value | None, int]) -> int:
    """The size of a head, by values with so many side by side on their last axis; -1 if unknown."""
    sizes = ((size_of(value, -1), count) for value, count in widths)
    return next((size // count for size, count in sizes if size is not None), -1)


def _operands(form: _Form, wide: int) -> list[str]:
    """`q [batch, heads, group, rows, size]`; `keys`, `values [batch, heads, length, size]`."""
    h, g = form.heads, form.group
    lines = [
        *(f"{x}_wide = Cast <to = {wide}> ({x})" for x in ("query", "key", "value")),
        "one = Constant <value_ints = [1]> ()",
        "two = Constant <value_ints = [2]> ()",
        "batch = Shape <start = 0, end = 1> (query)",
        f"apart = Constant <value_ints = [{h}, {g}]> ()",
        f"together = Constant <value_ints = [{h * g}]> ()",
    ]
    if form.packed:
        lines += [
            f"q_shape = Constant <value_ints = [0, 0, {h}, {g}, {form.size}]> ()",
            "q_apart = Reshape (query_wide, q_shape)",
            "q = Transpose <perm = [0, 2, 3, 1, 4]> (q_apart)",
        ]
        for x, size in (("key", form.size), ("value", form.value_size)):
            lines += [
                f"{x}_shape = Constant <value_ints = [0, 0, {h}, {size}]> ()",
                f"{x}_apart = Reshape ({x}_wide, {x}_shape)",
                f"{x}_new = Transpose <perm = [0, 2, 1, 3]> ({x}_apart)",
            ]
    else:
        lines += [
            "q_rest = Shape <start = 2> (query)",
            "q_shape = Concat <axis = 0> (batch, apart, q_rest)",
            "q = Reshape <allowzero = 1> (query_wide, q_shape)",
            "key_new = Identity (key_wide)",
            "value_new = Identity (value_wide)",
        ]
    if not form.has_past:
        return [*lines, "keys = Identity (key_new)", "values = Identity (value_new)"]
    for x, all_of_them in (("key", "keys"), ("value", "values")):
        lines += [
            f"past_{x}_wide = Cast <to = {wide}> (past_{x})",
            f"{all_of_them} = Concat <axis = 2> (past_{x}_wide, {x}_new)",
        ]
    return lines


def _scores(form: _Form, wide: int) -> list[str]:
    """`raw` and `capped [batch, heads * group, rows, length]`."""
    lines = [
        *_scale(form, wide),
        "q_scaled = Mul (q, scale)",
        "kt_near = Transpose <perm = [0, 1, 3, 2]> (keys)",
        "kt = Unsqueeze (kt_near, two)",
        "products = MatMul (q_scaled, kt)",
        "rows = Shape <start = 3, end = 4> (q)",
        "length = Shape <start = 2, end = 3> (keys)",
        "raw_shape = Concat <axis = 0> (batch, together, rows, length)",
        "raw = Reshape <allowzero = 1> (products, raw_shape)",
    ]
    if not form.softcap:
        return [*lines, "capped = Identity (raw)"]
    return [
        *lines,
        _number("cap", form.softcap, wide),
        "relative = Div (raw, cap)",
        "bounded = Tanh (relative)",
        "capped = Mul (bounded, cap)",
    ]


def _scale(form: _Form, wide: int) -> list[str]:
    if form.scale is not None:
        return [_number("scale", form.scale, wide)]
    # In double, and then rounded: as where the size is known.
    return [
        "head_size = Shape <start = 4> (q)",
        f"head_wide = Cast <to = {_DOUBLE}> (head_size)",
        "head_root = Sqrt (head_wide)",
        "head_scale = Reciprocal (head_root)",
        f"scale = Cast <to = {wide}> (head_scale)",
    ]


def _bias(form: _Form, wide: int) -> list[str]:
    """`scores`, and `seen`: what is left of the softmax where a row sees no key at all."""
    lines = [_number("never", float("-inf"), wide), _number("nothing", 0.0, wide)]
    hidden = _hidden(form)
    biases = []
    if hidden:
        lines += [*hidden, "hidden_bias = Where (hidden, never, nothing)"]
        biases.append("hidden_bias")
    if form.mask != "none":
        lines += _mask_bias(form, wide)
        biases.append("mask_bias")
    if len(biases) == 2:
        lines.append("bias = Add (hidden_bias, mask_bias)")
    elif biases:
        lines.append(f"bias = Identity ({biases[0]})")
    lines.append("scores = Add (capped, bias)" if biases else "scores = Identity (capped)")
    lines += [
        f"exponents = Cast <to = {form.softmax_type or wide}> (scores)",
        "weights = Softmax <axis = -1> (exponents)",
        f"probabilities = Cast <to = {wide}> (weights)",
    ]
    # Without these a row sees the first key, if there is one.
    if form.mask == "none" and not form.has_lengths and form.bounds[0] is None:
        return [*lines, "seen = Identity (probabilities)"]
    return [
        *lines,
        "last = Constant <value_ints = [-1]> ()",
        "highest = ReduceMax (bias, last)",
        "blind = Equal (highest, never)",
        "seen = Where (blind, nothing, probabilities)",
    ]


def _mask_bias(form: _Form, wide: int) -> list[str]:
    whole = "mask_bias" if not form.short_mask else "short_bias"
    if form.mask == "bool":
        lines = [f"{whole} = Where (mask, nothing, never)"]
    else:
        lines = [f"{whole} = Cast <to = {wide}> (mask)"]
    if form.short_mask:
        lines += [
            "mask_length = Shape <start = -1> (mask)",
            "missing = Sub (length, mask_length)",
            "at_the_end = Constant <value_ints = [-1]> ()",
            "none_before = Constant <value_ints = [0]> ()",
            "pads = Concat <axis = 0> (none_before, missing)",
            "mask_bias = Pad (short_bias, pads, never, at_the_end)",
        ]
    return lines


def _hidden(form: _Form) -> list[str]:
    """`hidden`, where a key must not be seen: broadcast to `[batch, heads, rows, length]`."""
    left, right = form.bounds
    if left is None and right is None and not form.has_lengths:
        return []
    lines = [
        "zero = Constant <value_int = 0> ()",
        "step = Constant <value_int = 1> ()",
        "stop = Squeeze (length)",
        "column = Range (zero, stop, step)",
    ]
    parts = []
    if form.has_lengths:
        lines += [
            "inner_axes = Constant <value_ints = [1, 2, 3]> ()",
            "each_length = Unsqueeze (lengths, inner_axes)",
            "padding = GreaterOrEqual (column, each_length)",
        ]
        parts.append("padding")
    if left is not None or right is not None:
        lines += _positions(form)
    if left is not None:
        lines += [
            f"to_the_left = Constant <value_int = {left}> ()",
            "first = Sub (position, to_the_left)",
            "before = Less (column, first)",
        ]
        parts.append("before")
    if right is not None:
        lines += [
            f"to_the_right = Constant <value_int = {right}> ()",
            "final = Add (position, to_the_right)",
            "after = Greater (column, final)",
        ]
        parts.append("after")
    for number, part in enumerate(parts[1:]):
        lines.append(f"hidden_{number} = Or ({parts[0]}, {part})")
        parts[0] = f"hidden_{number}"
    return [*lines, f"hidden = Identity ({parts[0]})"]


def _positions(form: _Form) -> list[str]:
    """`position`, of each row among the keys: `[rows, 1]` or `[batch, 1, rows, 1]`."""
    lines = [
        "row_stop = Squeeze (rows)",
        "row_numbers = Range (zero, row_stop, step)",
        "row = Unsqueeze (row_numbers, one)",
    ]
    if form.has_past:
        return [
            *lines,
            "offset = Shape <start = 2, end = 3> (past_key)",
            "position = Add (row, offset)",
        ]
    if form.has_lengths:
        return [*lines, "offset = Sub (each_length, rows)", "position = Add (row, offset)"]
    return [*lines, "position = Identity (row)"]


def _result(form: _Form) -> list[str]:
    """`y`, of the rank of the query."""
    lines = [
        "seen_shape = Concat <axis = 0> (batch, apart, rows, length)",
        "seen_apart = Reshape <allowzero = 1> (seen, seen_shape)",
        "values_apart = Unsqueeze (values, two)",
        "y_apart = MatMul (seen_apart, values_apart)",
        "y_size = Shape <start = 3> (values)",
    ]
    if form.packed:
        return [
            *lines,
            "y_near = Transpose <perm = [0, 3, 1, 2, 4]> (y_apart)",
            "width = Mul (together, y_size)",
            "y_shape = Concat <axis = 0> (batch, rows, width)",
            "y = Reshape <allowzero = 1> (y_near, y_shape)",
        ]
    return [
        *lines,
        "y_shape = Concat <axis = 0> (batch, together, rows, y_size)",
        "y = Reshape <allowzero = 1> (y_apart, y_shape)",
    ]


def _number(name: str, value: float, wide: int) -> str:
    kind = "double" if wide == _DOUBLE else "float"
    return f"{name} = Constant <value = {kind} {{{value!r}}}> ()"
