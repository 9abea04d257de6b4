"""Operators that look at elements or rows alone: what comes in front of a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ostinato.definitions.contributed.call import FLOAT, Call
from ostinato.definitions.ml.forest import BOOL
from ostinato.definitions.ml.scores import named
from ostinato.definitions.ml.table import ml
from ostinato.graph.writer import Array

# Keys are compared with each element.
_MOST_KEYS = 1024


@ml.register("Scaler")
def scaler(call: Call) -> Sequence[ir.Value]:
    """(x - offset) * scale, as float32."""
    offset, scale = (np.array(call.attribute(name), np.float32) for name in ("offset", "scale"))
    centred = call.op("Sub", call.cast(call["X"], FLOAT), offset)
    return [call.op("Mul", centred, scale)]


@ml.register("Normalizer")
def normalizer(call: Call) -> Sequence[ir.Value]:
    """Rows divided by their maximum, or by the norm; rows whose divisor is 0 stay."""
    norm, x = call.attribute("norm"), call.cast(call["X"], FLOAT)
    if norm not in ("MAX", "L1", "L2"):
        raise call.refuse(f"norm {norm} has no native form")
    reduction = "ReduceMax" if norm == "MAX" else f"Reduce{norm}"
    divisor = call.reduce(reduction, x, [-1], keepdims=True)
    is_zero = call.op("Equal", divisor, 0, dtype=BOOL)
    return [call.op("Div", x, call.op("Where", is_zero, call.number(1, x), divisor, dtype=FLOAT))]


@ml.register("Binarizer")
def binarizer(call: Call) -> Sequence[ir.Value]:
    """1 for elements above the threshold, else 0."""
    x = call["X"]
    limit = call.number(call.attribute("threshold"), x)
    return [call.cast(call.op("Greater", x, limit, dtype=BOOL), x.dtype or FLOAT)]


@ml.register("Imputer")
def imputer(call: Call) -> Sequence[ir.Value]:
    """Elements of one value, such as NaN, replaced by that of their column."""
    x = call["X"]
    kind = "float" if x.dtype in (FLOAT, ir.DataType.DOUBLE) else "int64"
    old, new = call.attribute(f"replaced_value_{kind}"), call.attribute(f"imputed_value_{kind}s")
    other = {"float": "int64", "int64": "float"}[kind]
    call.attribute(f"replaced_value_{other}")
    if call.attribute(f"imputed_value_{other}s") or not new or x.dtype is None:
        raise call.refuse("values of another type than the elements have no native form")
    is_old = call.op("IsNaN", x, dtype=BOOL) if old != old else call.op("Equal", x, old, dtype=BOOL)
    return [call.op("Where", is_old, np.array(new, x.dtype.numpy()), x, dtype=x.dtype)]


@ml.register("ArrayFeatureExtractor")
def array_feature_extractor(call: Call) -> Sequence[ir.Value]:
    """Columns at positions, of which there may be several axes."""
    x = call["X"]
    if x.dtype == ir.DataType.STRING:
        raise call.refuse("texts have no native form")
    columns = call.op("Gather", x, call.reshape(call["Y"], -1), axis=-1)
    return [call.reshape(columns, 1, -1) if call.rank(x) == 1 else columns]


@ml.register("FeatureVectorizer")
def feature_vectorizer(call: Call) -> Sequence[ir.Value]:
    """Rows one behind the other as float32, each cut or filled up with zeros to its size."""
    operands = [value for value in call.node.inputs if value is not None]
    sizes, parts = call.attribute("inputdimensions") or (), []
    if len(sizes) != len(operands) or any(call.rank(x) not in (1, 2) for x in operands):
        raise call.refuse("other than a size for each operand of rows has no native form")
    for x, size in zip(operands, sizes, strict=True):
        width = call.size(x, -1)
        row = call.cast(x if call.rank(x) == 2 else call.reshape(x, 1, -1), FLOAT)
        missing = size if width is None else max(size - width, 0)
        if missing:
            row = call.op("Pad", row, np.array([0, 0, 0, missing]))
        parts.append(row if width is not None and width <= size else call.slice(row, 0, size, 1))
    return [call.op("Concat", *parts, axis=1)]


@ml.register("OneHotEncoder")
def one_hot_encoder(call: Call) -> Sequence[ir.Value]:
    """A new last axis with 1 at the place of each element among categories, else 0."""
    x, categories = call["X"], call.attribute("cats_int64s")
    texts = call.attribute("cats_strings")
    if bool(texts) == bool(categories) or not call.attribute("zeros"):
        raise call.refuse("two kinds of categories, and errors for others, have no native form")
    if texts:
        if len(set(texts)) < len(texts):
            raise call.refuse("categories that are repeated have no native form")
        # Texts are looked up in front of what is native.
        categories = range(len(texts))
        x = call.places(x, texts)
    wide = call.cast(x, ir.DataType.INT64)
    found = call.op("Equal", _last_axis(call, wide), np.array(categories, np.int64), dtype=BOOL)
    return [call.cast(found, FLOAT)]


@ml.register("LabelEncoder")
def label_encoder(call: Call) -> Sequence[ir.Value]:
    """Numbers or texts by keys that are numbers; keys that are texts are looked up as they are.

    Of keys that are repeated the first one counts.
    """
    x = call["X"]
    if x.dtype == ir.DataType.STRING:
        raise call.refuse("texts have no native form")
    if "classes_strings" in call.node.attributes:
        values = np.array(call.attribute("classes_strings"), object)
        keys = np.arange(len(values))
    else:
        keys, values = (_labels(call, what) for what in ("keys", "values"))
    if len(keys) != len(values) or len(keys) > _MOST_KEYS:
        raise call.refuse("keys that are many, or not as many as values, have no native form")
    own = np.stack([call.number(key, x) for key in keys.tolist()])
    is_key = call.op("Equal", _last_axis(call, x), own, dtype=BOOL)
    found = call.cast(is_key, ir.DataType.INT32)
    place = call.op("ArgMax", found, dtype=ir.DataType.INT64, axis=-1, keepdims=0)
    is_known = call.cast(call.reduce("ReduceMax", found, [-1], keepdims=False), BOOL)
    default = _default(call, values)
    if values.dtype == object:
        place = call.op("Where", is_known, place, np.array(len(values)), dtype=ir.DataType.INT64)
        return [named(call, place, np.append(values, default))]
    kind = ir.DataType.from_numpy(values.dtype)
    value = call.op("Gather", values, place, dtype=kind)
    return [call.op("Where", is_known, value, default, dtype=kind)]


def _labels(call: Call, what: str) -> Array:
    """Keys that are numbers, or values; refuses texts among keys, and NaN."""
    given = [name for name in call.node.attributes if name.startswith(f"{what}_")]
    if len(given) != 1 or given == ["keys_strings"]:
        raise call.refuse(f"{what} of several kinds, or keys that are texts, have no native form")
    (name,) = given
    if name == "values_strings":
        return np.array(call.attribute(name), object)
    if name.endswith("_tensor"):
        found = call.tensor(name)
    else:
        kind = np.int64 if name.endswith("int64s") else np.float32
        found = np.array(call.attribute(name), kind)
    if name == "values_tensor" and found.dtype == object:
        return found
    if found.dtype.kind not in "if" or np.isnan(found).any() or not found.size:
        raise call.refuse(f"{what} that are no numbers have no native form")
    return found


def _default(call: Call, values: Array) -> Array:
    """The value for elements that are no keys."""
    name = {"i": "default_int64", "O": "default_string"}.get(values.dtype.kind, "default_float")
    found = call.attribute(name)
    for other in {"default_int64", "default_float", "default_string"} & call.node.attributes.keys():
        # A default of another type than the values means nothing.
        call.attribute(other)
    if "default_tensor" in call.node.attributes:
        return call.tensor("default_tensor").reshape(()).astype(values.dtype)
    return np.array(found, values.dtype)


def _last_axis(call: Call, x: ir.Value) -> ir.Value:
    """x with a last axis of size 1."""
    value = call.writer.unsqueeze(x, [call.rank(x)], "last")
    assert isinstance(value, ir.Value)
    return value
