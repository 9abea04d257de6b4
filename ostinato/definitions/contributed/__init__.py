"""Operators that onnxruntime's tools write, by those of the standard.

A definition takes a `Call` and returns the values of its outputs. Formulas:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""
