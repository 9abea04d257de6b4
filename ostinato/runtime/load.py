"""From a model to its runnable stages: specialised first, general when a guard fails."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ostinato.options import Options
from ostinato.runtime.build import build, require_same
from ostinato.stages.compiled import CompiledModel
from ostinato.stages.flow import Flow
from ostinato.stages.notice import Notice
from ostinato.stages.report import always_interpreted
from ostinato.stages.stage import Keeping

if TYPE_CHECKING:
    import onnx


def load(
    model: Any, options: Options, notice: Notice, kept: Keeping | None = None
) -> tuple[Flow, bool]:
    """The flow of a model, and whether it came from the cache.

    kept: as in `compile_model`.
    Raises what compiling the model raises.
    """
    compiled, from_cache = build(model, options, guarded=True, kept=kept)

    # Only a model whose program has guards is kept, to compile the general one.
    def general() -> CompiledModel:
        require_same(model, compiled)
        return build(model, options, kept=kept)[0]

    def specialize(node: onnx.ModelProto) -> Flow:
        return load(node, dataclasses.replace(options, fallback=False, specialize={}), notice)[0]

    flow = Flow(compiled, options, notice, specialize, general if compiled.has_guards else None)
    notice(always_interpreted(flow.not_native()))
    return flow, from_cache
