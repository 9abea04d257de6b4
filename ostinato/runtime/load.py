"""Load a model as runnable stages: specialised ones first, others when a guard fails."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

from ostinato.guards import Guards
from ostinato.options import Options
from ostinato.runtime.build import build, require_same
from ostinato.stages.flow import Flow
from ostinato.stages.notice import Notice
from ostinato.stages.report import always_interpreted
from ostinato.stages.stage import CompiledModel, Keeping

if TYPE_CHECKING:
    import onnx


def load(
    model: Any, options: Options, notice: Notice, kept: Keeping | None = None
) -> tuple[Flow, bool]:
    """The flow of a model, and whether it came from the cache.

    kept: as in `compile_model`.
    Raises what compiling the model raises.
    """
    compiled, from_cache = build(model, options, guarded=Guards.LIKELY, kept=kept)

    # Only a model whose program has guards is kept, to compile the others.
    def other(guards: Guards) -> CompiledModel:
        require_same(model, compiled)
        return build(model, options, guards, kept)[0]

    others = []
    if compiled.has_guards:
        ways = [Guards.OTHERWISE] if compiled.report.get("other_ways") else []
        others = [*ways, Guards.NONE]

    def specialize(node: onnx.ModelProto) -> Flow:
        return load(node, dataclasses.replace(options, fallback=False, specialize={}), notice)[0]

    flow = Flow(compiled, options, notice, specialize, [partial(other, one) for one in others])
    notice(always_interpreted(flow.not_native()))
    return flow, from_cache
