from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def models_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The suite writes inputs of its image networks to a folder; without this one, to ~/.onnx."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONNX_MODELS", str(tmp_path_factory.mktemp("models")))
        yield
