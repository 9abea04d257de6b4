"""A compiled model as data, and its form in the cache: a JSON header and raw blobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field
from typing import Any

import numpy as np

from ostinato.codegen.artifact import Argument, Artifact
from ostinato.native.arguments import numpy_dtype
from ostinato.records import dataclass
from ostinato.stages.stage import (
    BranchStage,
    FallbackStage,
    GrownInput,
    KeptState,
    ListStage,
    NativeStage,
    Stage,
)

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class CompiledModel:
    """A compiled model: its stages and their report.

    inputs, outputs: as the model declares them, in its order.
    stages: run in this order. One native stage over exactly `inputs` and `outputs`, in the same
        order, is what makes the shortest calls.
    constants: values by name that fallback stages read or that are model outputs.
    overridable: the initializers that a caller may replace, as the model declares them.
    report: JSON-able facts about the compilation ("passes", "ops"), part of
        `InferenceSession.report`; under "other_ways" whether a program for those that its guards
        exclude may be native where one for all sizes is not.
    appended: inputs, and the outputs that are such an input with rows behind it.
    kept, grown: the growing states of the stream that it was compiled for, and the inputs that are
        as long as they are.
    """

    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    stages: tuple[Stage, ...]
    constants: Mapping[str, Array] = field(default_factory=dict)
    overridable: tuple[Argument, ...] = ()
    report: Mapping[str, Any] = field(default_factory=dict)
    appended: tuple[tuple[str, str], ...] = ()
    kept: tuple[KeptState, ...] = ()
    grown: tuple[GrownInput, ...] = ()

    @property
    def has_guards(self) -> bool:
        """Whether a native stage is specialised behind guards."""
        natives = [stage for stage in self.whole() if isinstance(stage, NativeStage)]
        return any(stage.artifact.report.get("assumptions") for stage in natives)

    def whole(self) -> Iterator[NativeStage | FallbackStage | ListStage]:
        """All stages, those of its branches in place of a `BranchStage`."""
        for stage in self.stages:
            if isinstance(stage, BranchStage):
                for branch in stage.branches:
                    yield from branch.whole()
            else:
                yield stage


def pack(model: CompiledModel) -> tuple[dict[str, Any], list[bytes | Array]]:
    """A JSON-able header and the blobs its numbers refer to."""
    blobs: list[bytes | Array] = []

    def blob(data: bytes | Array) -> int:
        blobs.append(data)
        return len(blobs) - 1

    return _pack_model(model, blob), blobs


def unpack(header: Mapping[str, Any], blobs: Sequence[Array]) -> CompiledModel:
    """The inverse of `pack`; constants stay views of the blobs."""
    return CompiledModel(
        inputs=_unpack_arguments(header["inputs"]),
        outputs=_unpack_arguments(header["outputs"]),
        stages=tuple(_unpack_stage(stage, blobs) for stage in header["stages"]),
        constants={name: _unpack_array(c, blobs) for name, c in header["constants"].items()},
        overridable=_unpack_arguments(header["overridable"]),
        report=header["report"],
        appended=tuple((past, present) for past, present in header["appended"]),
        kept=tuple(KeptState(**state) for state in header["kept"]),
        grown=tuple(GrownInput(**each) for each in header["grown"]),
    )


def _pack_model(model: CompiledModel, blob: Any) -> dict[str, Any]:
    return {
        "inputs": _pack_arguments(model.inputs),
        "outputs": _pack_arguments(model.outputs),
        "stages": [_pack_stage(stage, blob) for stage in model.stages],
        "overridable": _pack_arguments(model.overridable),
        "constants": {name: _pack_array(array, blob) for name, array in model.constants.items()},
        "report": dict(model.report),
        "appended": list(model.appended),
        "kept": [asdict(state) for state in model.kept],
        "grown": [asdict(each) for each in model.grown],
    }


def _pack_arguments(arguments: Sequence[Argument]) -> list[Any]:
    return [[argument.name, argument.dtype, list(argument.shape)] for argument in arguments]


def _unpack_arguments(rows: Sequence[Any]) -> tuple[Argument, ...]:
    return tuple(Argument(name, dtype, tuple(shape)) for name, dtype, shape in rows)


def _pack_stage(stage: Stage, blob: Any) -> dict[str, Any]:
    if isinstance(stage, NativeStage):
        return _pack_native(stage, blob)
    if isinstance(stage, BranchStage):
        return _pack_branch(stage, blob)
    return _pack_list(stage) if isinstance(stage, ListStage) else _pack_node(stage, blob)


def _unpack_stage(record: Mapping[str, Any], blobs: Sequence[Array]) -> Stage:
    if "object" in record:
        return _unpack_native(record, blobs)
    if "branches" in record:
        return _unpack_branch(record, blobs)
    return _unpack_list(record) if "elements" in record else _unpack_node(record, blobs)


def _pack_branch(stage: BranchStage, blob: Any) -> dict[str, Any]:
    return {
        "name": stage.name,
        "condition": stage.condition,
        "inputs": _pack_arguments(stage.inputs),
        "outputs": _pack_arguments(stage.outputs),
        "branches": [_pack_model(model, blob) for model in stage.branches],
    }


def _unpack_branch(record: Mapping[str, Any], blobs: Sequence[Array]) -> BranchStage:
    first, second = (unpack(model, blobs) for model in record["branches"])
    return BranchStage(
        name=record["name"],
        condition=record["condition"],
        inputs=_unpack_arguments(record["inputs"]),
        outputs=_unpack_arguments(record["outputs"]),
        branches=(first, second),
    )


def _pack_list(stage: ListStage) -> dict[str, Any]:
    elements = None if stage.elements is None else _pack_arguments(stage.elements)
    output = _pack_arguments([stage.output])
    return {"output": output, "elements": elements, "is_rows": stage.is_rows, "axis": stage.axis}


def _unpack_list(record: Mapping[str, Any]) -> ListStage:
    (output,) = _unpack_arguments(record["output"])
    elements = record["elements"]
    unpacked = None if elements is None else _unpack_arguments(elements)
    return ListStage(output, unpacked, record["is_rows"], record["axis"])


def _pack_native(stage: NativeStage, blob: Any) -> dict[str, Any]:
    artifact = stage.artifact
    return {
        "object": blob(artifact.object_code),
        "constants": blob(artifact.constants),
        "inputs": _pack_arguments(artifact.inputs),
        "outputs": _pack_arguments(artifact.outputs),
        "symbols": list(artifact.symbols),
        "values": [[position, list(names)] for position, names in artifact.values],
        "shapes": [list(pair) for pair in artifact.shapes],
        "replaced": [list(pair) for pair in artifact.replaced],
        "report": dict(artifact.report),
    }


def _unpack_native(record: Mapping[str, Any], blobs: Sequence[Array]) -> NativeStage:
    artifact = Artifact(
        object_code=blobs[record["object"]].tobytes(),
        inputs=_unpack_arguments(record["inputs"]),
        outputs=_unpack_arguments(record["outputs"]),
        symbols=tuple(record["symbols"]),
        constants=blobs[record["constants"]],
        report=record["report"],
        values=tuple((position, tuple(names)) for position, names in record["values"]),
        shapes=tuple((position, place) for position, place in record["shapes"]),
        replaced=tuple((source, target) for source, target in record["replaced"]),
    )
    return NativeStage(artifact)


def _pack_node(stage: FallbackStage, blob: Any) -> dict[str, Any]:
    return {
        "node": blob(stage.node),
        "inputs": _pack_arguments(stage.inputs),
        "outputs": _pack_arguments(stage.outputs),
        "opsets": [list(pair) for pair in stage.opsets],
        "name": stage.name,
        "op": stage.op,
        "reason": stage.reason,
        "value_keys": list(stage.value_keys),
        "structure_keys": list(stage.structure_keys),
    }


def _unpack_node(record: Mapping[str, Any], blobs: Sequence[Array]) -> FallbackStage:
    return FallbackStage(
        node=blobs[record["node"]].tobytes(),
        inputs=_unpack_arguments(record["inputs"]),
        outputs=_unpack_arguments(record["outputs"]),
        opsets=tuple((domain, version) for domain, version in record["opsets"]),
        name=record["name"],
        op=record["op"],
        reason=record["reason"],
        value_keys=tuple(record["value_keys"]),
        structure_keys=tuple(record["structure_keys"]),
    )


def _pack_array(array: Array, blob: Any) -> dict[str, Any]:
    if array.dtype == object:
        return {"dtype": "string", "shape": array.shape, "strings": array.ravel().tolist()}
    data = np.frombuffer(array.tobytes(), np.uint8)
    return {"dtype": array.dtype.name, "shape": array.shape, "blob": blob(data)}


def _unpack_array(record: Mapping[str, Any], blobs: Sequence[Array]) -> Array:
    if "strings" in record:
        array = np.empty(len(record["strings"]), object)
        array[:] = record["strings"]
    else:
        array = blobs[record["blob"]].view(numpy_dtype(record["dtype"]))
    return array.reshape(record["shape"])
