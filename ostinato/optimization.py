"""The graph passes of every model, those that expand gradients included: ONNX in, ONNX out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import onnx
import onnx_ir as ir

from ostinato.arguments import names_of
from ostinato.errors import OptionError
from ostinato.model.load import ModelLike, load_model
from ostinato.passes.normalise.integer_blocks import possible_integer_blocks
from ostinato.passes.normalise.integer_products import possible_integer_products
from ostinato.passes.normalise.portable import portable
from ostinato.passes.pipeline import (
    Observer,
    run_passes,
    with_gradient_nodes,
    with_integer_products,
)
from ostinato.passes.simplify.constant_evaluation import Evaluate, constant_evaluation


def _expand_gradients(model: ir.Model) -> int:
    if not any(node.op_type == "Gradient" for node in model.graph.all_nodes()):
        return 0
    # The rules of gradients take a while to import, and few models have such nodes.
    from ostinato.autodiff.nodes import expand_gradients

    return expand_gradients(model)


ALL_PASSES = with_gradient_nodes(_expand_gradients)


def run_all_passes(
    model: ir.Model,
    disable: Collection[str] = (),
    observer: Observer | None = None,
    integer_products: bool = False,
    evaluate: Evaluate | None = None,
) -> dict[str, int]:
    """`passes.run_passes` with `ALL_PASSES`, and with `integer_products` where that is wanted.

    evaluate: computes what follows from constants alone, once nothing else is left to simplify;
        where that finds something, all passes run again.
    """
    passes = with_integer_products(ALL_PASSES) if integer_products else ALL_PASSES
    changes: Counter[str] = Counter()
    while True:
        changes.update(run_passes(model, disable, observer, passes))
        evaluated = 0 if evaluate is None else constant_evaluation(model, evaluate)
        changes[constant_evaluation.__name__] += evaluated
        if not evaluated:
            return dict(changes)
        if observer is not None:
            observer(constant_evaluation.__name__, model)


def advice(model: ir.Model, integer_products: bool) -> list[str]:
    """Options that would make a model faster that has gone through all passes, a sentence each."""
    if integer_products:
        return []
    count = possible_integer_products(model) + possible_integer_blocks(model)
    if not count:
        return []
    products = "1 product of dequantised bytes runs"
    if count > 1:
        products = f"{count} products of dequantised bytes run"
    return [
        f"{products} in float32, with the roundings of the operators' documents; the option "
        "integer_products=True multiplies the bytes, as onnxruntime does (docs/quantization.md)"
    ]


def optimize(model: ModelLike, disable: Collection[str] = ()) -> onnx.ModelProto:
    """Simplify a model with all graph passes but those named in `disable`.

    Accepts a path, bytes, a `ModelProto` or an `onnx_ir.Model`, which is not changed. Returns a
    model of standard operators with the same inputs and outputs, for any runtime. RNN, GRU and
    LSTM come out as Scan, unless `disable` names "recurrent_to_scan".

    Raises what `load_model` raises, `UnsupportedError` for what a pass refuses, and `OptionError`
    for an unknown pass name.
    """
    names = [item.name for item in ALL_PASSES]
    given = names_of(disable)
    if given is None:
        raise OptionError(f"disable={disable!r}: expected a list of names of passes")
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise OptionError(f"no pass is named {unknown[0]!r}; there are {', '.join(names)}")
    loaded = load_model(model)
    run_all_passes(loaded, given)
    return portable(loaded)
