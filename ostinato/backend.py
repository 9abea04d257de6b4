"""The `onnx.backend` interface: `ostinato.backend.run_model(model, [x])`.

`prepare` and the rest are also methods of `OstinatoBackend`, the class that the test suite of ONNX
(`onnx.backend.test.BackendTest`) takes. Keyword arguments are fields of `ostinato.Options`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from ostinato.errors import InputError, OptionError, UnsupportedError
from ostinato.runtime.session import InferenceSession


class OstinatoBackendRep(BackendRep):
    """A compiled model that takes its inputs by position. session: what it runs on."""

    def __init__(self, session: InferenceSession) -> None:
        self.session = session
        self._inputs = [argument.name for argument in session.get_inputs()]
        self._results = namedtupledict("Outputs", [o.name for o in session.get_outputs()])

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs in the model's order, a tuple that can also be indexed by name.

        inputs: a list with a value for every input, in the model's order: an array, a scalar, a
            list of values (a sequence), None (an empty optional), or one of these as a protobuf
            message. Raises `InputError` for another number of them, and what
            `InferenceSession.run` raises.
        """
        if kwargs:
            raise InputError(f"run: unknown argument {next(iter(kwargs))!r}")
        if not isinstance(inputs, Sequence) or isinstance(inputs, str | bytes):
            got = type(inputs).__name__
            raise InputError(f"inputs: expected a list of values in the model's order, got {got}")
        if len(inputs) != len(self._inputs):
            names = ", ".join(self._inputs) or "none"
            raise InputError(f"inputs: expected {len(self._inputs)} ({names}), got {len(inputs)}")
        values = [_plain(value) for value in inputs]
        results = self.session.run(None, dict(zip(self._inputs, values, strict=True)))
        return self._results(*results)


class OstinatoBackend(Backend):
    """Compiles and runs models behind the interface of `onnx.backend.base.Backend`."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether the model can be compiled: False if it uses something that is refused by name."""
        try:
            cls.prepare(model, device, **kwargs)
        except UnsupportedError:
            return False
        return True

    @classmethod
    def prepare(
        cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any
    ) -> OstinatoBackendRep:
        """Compile a model. kwargs: fields of `Options`.

        Raises `OptionError` for another device than the CPU and what `InferenceSession` raises.
        """
        if not cls.supports_device(device):
            raise OptionError(f"device={device!r}: only 'CPU' is available")
        return OstinatoBackendRep(InferenceSession(model, **kwargs))

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Compile a model and run it once. Raises what `prepare` and its result's `run` raise."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Compile a model of one node and run it.

        inputs: a value for each input of the node; None, or nothing, for those without a name.
        outputs_info: (dtype, shape) of every output; inferred when absent, where that is possible.
        kwargs: fields of `Options`, and `opset_version`: of the node's domain, the newest one if
            absent. Raises `InputError` and what `run_model` raises.
        """
        names = [name for name in node.input if name]
        values = [_plain(value) for value in inputs if value is not None]
        if len(values) != len(names):
            expected = ", ".join(names) or "none"
            raise InputError(
                f"node {node.name!r} ({node.op_type}): expected {len(names)} inputs ({expected}), "
                f"got {len(values)}"
            )
        feed = dict(zip(names, values, strict=True))
        newest = onnx.defs.onnx_opset_version()
        opsets = {"": newest, node.domain: kwargs.pop("opset_version", None) or _newest(node)}
        model = _one_node_model(node, feed, outputs_info, opsets)
        return cls.run_model(model, [*feed.values()], device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether `device` is the CPU."""
        return device.partition(":")[0] == "CPU"


is_compatible = OstinatoBackend.is_compatible
prepare = OstinatoBackend.prepare
run_model = OstinatoBackend.run_model
run_node = OstinatoBackend.run_node
supports_device = OstinatoBackend.supports_device


def _plain(value: Any) -> Any:
    """The value of a protobuf message; anything else as it is."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, onnx.SequenceProto):
        return numpy_helper.to_list(value)
    if isinstance(value, onnx.OptionalProto):
        return numpy_helper.to_optional(value)
    return value


def _newest(node: onnx.NodeProto) -> int:
    """The version of the node's domain in which its operator last changed."""
    if not node.domain:
        return onnx.defs.onnx_opset_version()
    try:
        return onnx.defs.get_schema(node.op_type, node.domain).since_version
    except onnx.defs.SchemaError as error:
        reason = f"domain {node.domain!r} has no such operator"
        raise UnsupportedError(node.name, node.op_type, reason) from error


def _one_node_model(
    node: onnx.NodeProto,
    feed: Mapping[str, Any],
    outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None,
    opsets: Mapping[str, int],
) -> onnx.ModelProto:
    types = {name: _type_of(name, value) for name, value in feed.items()}
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    outputs = [name for name in node.output if name]
    if outputs_info is None:
        data = {n: numpy_helper.from_array(v) for n, v in feed.items() if _is_small(v)}
        made = _inferred(node, opsets[node.domain], types, data, imports)
    else:
        made = {
            name: onnx.helper.make_tensor_type_proto(
                onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape
            )
            for name, (dtype, shape) in zip(outputs, outputs_info, strict=True)
        }
    graph = onnx.helper.make_graph(
        [node],
        "node",
        [onnx.helper.make_value_info(name, kind) for name, kind in types.items()],
        [onnx.helper.make_value_info(name, made[name]) for name in outputs],
    )
    return onnx.helper.make_model(graph, opset_imports=imports)


def _inferred(
    node: onnx.NodeProto,
    version: int,
    types: dict[str, onnx.TypeProto],
    data: dict[str, onnx.TensorProto],
    imports: list[onnx.OperatorSetIdProto],
) -> dict[str, onnx.TypeProto]:
    """The types of the outputs. Raises `InputError` for one that is not known with its rank."""
    where = f"node {node.name!r} ({node.op_type})"
    try:
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
        made = onnx.shape_inference.infer_node_outputs(schema, node, types, data, None, imports)
    except onnx.defs.SchemaError as error:
        reason = f"{node.domain or 'ai.onnx'} version {version} has no such operator"
        raise UnsupportedError(node.name, node.op_type, reason) from error
    except onnx.shape_inference.InferenceError as error:
        raise InputError(f"{where}: {error}") from error
    for name in filter(None, node.output):
        kind = made.get(name, onnx.TypeProto())
        is_tensor = kind.HasField("tensor_type")
        if not kind.WhichOneof("value") or (is_tensor and not kind.tensor_type.HasField("shape")):
            raise InputError(
                f"{where}: the type of output {name!r} does not follow from the inputs; "
                "pass outputs_info"
            )
    return made


def _is_small(value: Any) -> bool:
    """Whether a value may be an axis or a shape, which decides the shape of the outputs."""
    return isinstance(value, np.ndarray) and value.ndim < 2 and value.dtype == np.int64


def _type_of(name: str, value: Any) -> onnx.TypeProto:
    if isinstance(value, list | tuple) and all(isinstance(v, np.ndarray) for v in value) and value:
        return onnx.helper.make_sequence_type_proto(
            onnx.helper.make_tensor_type_proto(_element_type(value[0]), None)
        )
    if not isinstance(value, np.ndarray | np.generic):
        raise InputError(f"input {name!r}: expected an array, got {type(value).__name__}")
    return onnx.helper.make_tensor_type_proto(_element_type(value), value.shape)


def _element_type(value: Any) -> int:
    if value.dtype.kind in "OUT":
        return int(onnx.TensorProto.STRING)
    return onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
