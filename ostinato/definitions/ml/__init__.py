"""Operators of `ai.onnx.ml`, classical machine learning, by those of the standard.

A definition takes a `Call` and returns the values of its outputs. It refuses what has no numbers,
such as labels that are texts: reference kernels run that. Formulas:
https://github.com/onnx/onnx/blob/main/docs/Operators-ml.md, and where they leave a choice, that of
onnxruntime.
"""
