"""Bytes of protobuf messages, without its library and the onnx package."""
