"""Gradients of the exported models of `tests/models` beside those of PyTorch itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import ostinato
from ostinato.autodiff import gradient
from tests.autodiff.check import with_loss

torch = pytest.importorskip("torch", reason="torch is not installed")

from tools.export_models import FOLDER, NETWORKS, build  # noqa: E402

MODELS = sorted(path.name.removesuffix(".onnx") for path in Path(FOLDER).glob("*.onnx"))
TOLERANCE = 2e-5

Arrays = dict[str, np.ndarray]


def matched(model: onnx.ModelProto, parameters: Arrays) -> dict[str, tuple[str, bool]]:
    """The parameter that an initializer holds, and whether transposed; exporters rename many.

    Without those that are equal to each other, such as scales of ones: exporters store one for all.
    """
    found = {}
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype != np.float32 or array.ndim == 0:
            continue
        equal = [
            (name, turned)
            for name, value in parameters.items()
            for turned in (False, True)
            if np.array_equal(array, value.T if turned else value)
        ]
        if len({name for name, _ in equal}) == 1:
            found[tensor.name] = equal[0]
    return found


@pytest.mark.parametrize("model_name", MODELS)
def test_gradients_are_those_of_torch(model_name: str) -> None:
    name, exporter = model_name.split(".")
    network = NETWORKS[name]
    module = build(network, exporter).requires_grad_(True)
    model = onnx.load(FOLDER / f"{model_name}.onnx")
    parameters = {n: p.detach().numpy() for n, p in module.named_parameters()}
    held = matched(model, parameters)
    sizes = network.sizes[0]
    random = np.random.default_rng(3)
    inputs = {n: value.make(sizes, random) for n, value in network.inputs.items()}
    for value in inputs.values():
        value.requires_grad_(value.is_floating_point())
    results = module(**inputs)
    results = (results,) if isinstance(results, torch.Tensor) else results
    loss, feeds = torch.zeros(()), {n: value.detach().numpy() for n, value in inputs.items()}
    for output, result in zip(network.outputs, results, strict=True):
        if result.is_floating_point():
            factors = random.standard_normal(result.shape).astype(np.float32)
            feeds[f"{output}_factors"] = factors
            loss = loss + (result * torch.from_numpy(factors)).sum()
    loss.backward()
    expected = {n: value.grad for n, value in inputs.items() if value.requires_grad}
    for initializer, (parameter, turned) in held.items():
        slope = module.get_parameter(parameter).grad
        expected[initializer] = slope.T if turned and slope is not None else slope

    differentiated = gradient(with_loss(model), "loss", list(expected))
    session = ostinato.InferenceSession(differentiated)
    assert session.report()["fallback"] == []
    values = session.run([f"{n}_grad" for n in expected], feeds)
    for (what, slope), got in zip(expected.items(), values, strict=True):
        wanted = np.zeros_like(got) if slope is None else slope.numpy()
        scale = max(1.0, float(np.abs(wanted).max(initial=0)))
        np.testing.assert_allclose(got, wanted, rtol=0, atol=TOLERANCE * scale, err_msg=what)
