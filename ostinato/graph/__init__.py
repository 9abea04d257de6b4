"""Analyses of ONNX graphs, edits that keep them valid, and a writer of nodes."""
