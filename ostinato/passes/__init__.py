"""Graph-level work: passes that turn a valid ONNX model into a simpler valid ONNX model."""

from ostinato.passes.pipeline import PASSES, Pass, pass_names, run_passes

__all__ = ["PASSES", "Pass", "pass_names", "run_passes"]
