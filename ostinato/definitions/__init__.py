"""Operators that are defined by other operators, as ONNX text or as nodes."""
