"""Reading a model: anything ONNX in, one checked and normalised onnx-ir model out."""
