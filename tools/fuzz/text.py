"""A random model while it is made: ONNX text for its nodes, and arrays for its constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.parser

from tools.fuzz.choosing import Chooser

Array = np.ndarray[Any, Any]


@dataclass
class Text(Chooser):
    """A model that grows. lines: its nodes. constants: arrays by name."""

    lines: list[str] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    count: int = 0

    def number(self, least: int, most: int) -> int:
        """From `least` to `most`, both included."""
        return int(self.random.integers(least, most + 1))

    def name(self, stem: str = "v") -> str:
        """A name that nothing has yet."""
        self.count += 1
        return f"{stem}{self.count}"

    def emit(self, expression: str, outputs: int = 1) -> Any:
        """A node; the name of its output, or a tuple of several."""
        names = [self.name() for _ in range(outputs)]
        self.lines.append(f"{', '.join(names)} = {expression}")
        return names[0] if outputs == 1 else tuple(names)

    def constant(self, value: Any, dtype: Any = None) -> str:
        name = self.name("c")
        self.constants[name] = np.array(value, dtype)
        return name

    def ints(self, *numbers: int) -> str:
        return self.constant(numbers, np.int64)

    def scalar(self, number: int) -> str:
        return self.constant(number, np.int64)

    def real(self, number: float) -> str:
        return self.constant(number, np.float32)

    def model(self, inputs: Sequence[str], outputs: Sequence[str], opset: int) -> onnx.ModelProto:
        """The model. inputs, outputs: types with names."""
        text = "\n".join(self.lines)
        graph = f"g ({', '.join(inputs)}) => ({', '.join(outputs)}) {{\n{text}\n}}"
        model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {graph}')
        for name, array in self.constants.items():
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        return model
