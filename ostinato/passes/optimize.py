"""ONNX in, ONNX out."""

from __future__ import annotations

from collections.abc import Collection

import onnx

from ostinato.errors import OptionError
from ostinato.model.load import ModelLike, load_model
from ostinato.model.write import to_model_proto
from ostinato.passes.pipeline import pass_names, run_passes


def optimize(model: ModelLike, disable: Collection[str] = ()) -> onnx.ModelProto:
    """Simplify a model with all graph passes but those named in `disable`.

    Accepts a path, bytes, a `ModelProto` or an `onnx_ir.Model`, which is not changed. Returns a
    model of standard operators with the same inputs and outputs, for any runtime. RNN, GRU and
    LSTM come out as Scan, unless `disable` names "recurrent_to_scan".

    Raises what `load_model` raises, `UnsupportedError` for what a pass refuses, and `OptionError`
    for an unknown pass name.
    """
    unknown = sorted(set(disable) - set(pass_names()))
    if unknown:
        raise OptionError(f"no pass is named {unknown[0]!r}; there are {', '.join(pass_names())}")
    loaded = load_model(model)
    run_passes(loaded, disable)
    return to_model_proto(loaded)
