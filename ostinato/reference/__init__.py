"""Kernels that replace those of `onnx.reference` where these depart from the standard."""
