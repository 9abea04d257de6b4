"""The operator sets that a model imports, and the schemas of the versions it means."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import onnx.defs
import onnx.helper
import onnx_ir as ir

from ostinato.errors import ModelError


def normal_domain(domain: str) -> str:
    """The domain with `ai.onnx` spelt as the empty string."""
    return "" if domain == "ai.onnx" else domain


@lru_cache(maxsize=4096)
def schema_of(op_type: str, domain: str, opset: int) -> onnx.defs.OpSchema | None:
    """The schema that `op_type` has at version `opset` of `domain`, None when it has none."""
    try:
        return onnx.defs.get_schema(op_type, opset, normal_domain(domain))
    except onnx.defs.SchemaError:
        return None


def since_version(op_type: str, domain: str, opset: int) -> int:
    """The version of `domain` that introduced the meaning `op_type` has at version `opset`.

    Raises `ModelError` when the operator does not exist there.
    """
    schema = schema_of(op_type, domain, opset)
    if schema is None:
        raise ModelError(f"operator {op_type!r} does not exist in {domain or 'ai.onnx'} {opset}")
    return int(schema.since_version)


def opset_of(model: ir.Model, domain: str = "") -> int:
    """The version of `domain` that the model imports. Raises `ModelError` when it imports none."""
    version = model.opset_imports.get(normal_domain(domain))
    if version is None:
        raise ModelError(f"the model imports no operator set for domain {domain or 'ai.onnx'!r}")
    return version


def default_of(schema: onnx.defs.OpSchema, name: str) -> Any:
    """The default of an attribute, None where it has none."""
    declared = schema.attributes[name].default_value
    value = onnx.helper.get_attribute_value(declared) if declared.name else None
    return value.decode() if isinstance(value, bytes) else value
