from __future__ import annotations

import numpy as np
import onnx
import pytest

import ostinato
from ostinato import OptionError
from tests.quantization.models import feeds_of, language_model, model_of, weights_of


@pytest.mark.filterwarnings("ignore:.*not all native")
@pytest.mark.parametrize("quantize", ["int8", "int4"])
@pytest.mark.parametrize("name", ["GRU", "Gemm", "Scan", "Conv"])
def test_what_is_trained_is_what_is_exported(name: str, quantize: str) -> None:
    model = model_of(name)
    inputs = feeds_of(model)
    wanted = ostinato.InferenceSession(model_of(name, weights_of(name, 0.4))).run(None, inputs)
    outputs = [output.name for output in model.graph.output]
    batch = inputs, dict(zip(outputs, wanted, strict=True))
    trainer = ostinato.Trainer(model, lr=3e-3, quantize=quantize)
    losses = [trainer.step(*batch) for _ in range(20)]
    assert losses[-1] < losses[0]
    assert set(trainer.parameters) == {tensor.name for tensor in model.graph.initializer}
    narrow = trainer.quantized
    kind = {"int8": onnx.TensorProto.INT8, "int4": onnx.TensorProto.INT4}[quantize]
    assert kind in {tensor.data_type for tensor in narrow.graph.initializer}
    results = ostinato.InferenceSession(narrow).run(None, inputs)
    errors = [np.mean((a - b) ** 2) for a, b in zip(results, wanted, strict=True)]
    assert trainer.evaluate([batch]) == pytest.approx(float(np.sum(errors)), rel=1e-5)
    exact = ostinato.InferenceSession(trainer.model).run(None, inputs)
    assert any((a != b).any() for a, b in zip(results, exact, strict=True))


def test_an_embedding_that_also_gives_the_scores_stays_one_parameter() -> None:
    model, t = language_model(), np.arange(12).reshape(3, 4)
    trainer = ostinato.Trainer(model, "cross_entropy", quantize="int8")
    losses = [trainer.step({"t": t}, {"y": t}) for _ in range(5)]
    assert losses[-1] < losses[0]
    assert set(trainer.parameters) == {"E"}
    narrow = {tensor.name for tensor in trainer.quantized.graph.initializer}
    assert narrow == {"E_int8", "E_scale"}


def test_mistakes() -> None:
    with pytest.raises(OptionError, match=r"quantize='bf16'.*int8"):
        ostinato.Trainer(model_of("Gemm"), quantize="bf16")
    with pytest.raises(OptionError, match=r"block=5.*12 products"):
        ostinato.Trainer(model_of("Gemm"), quantize="int4", block=5)
    with pytest.raises(OptionError, match="block=4: without `quantize`"):
        ostinato.Trainer(model_of("Gemm"), block=4)
    with pytest.raises(OptionError, match="without `quantize`"):
        _ = ostinato.Trainer(model_of("Gemm")).quantized
