"""What may be given as a module: programs, compiled modules, modules that contain these."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")

import ostinato.torch  # noqa: E402
from ostinato.errors import UnsupportedError  # noqa: E402
from ostinato.torch import dynamo  # noqa: E402

pytestmark = pytest.mark.extras


def assert_alike(call: Any, module: Any, x: Any) -> None:
    """Results and gradients of parameters."""
    results = []
    for one in (module, call):
        module.zero_grad()
        y = one(x)
        y.square().sum().backward()
        results.append([y, *[p.grad for p in module.parameters()]])
    torch.testing.assert_close(*results)


def test_a_compiled_module_may_be_a_part_of_others() -> None:
    cell, x = torch.nn.GRUCell(4, 4), torch.randn(2, 4)
    part = ostinato.torch.compile(cell, x)
    whole = torch.nn.Sequential(part, torch.nn.Linear(4, 3))
    module = torch.nn.Sequential(cell, whole[1])
    assert_alike(whole, module, x)
    assert_alike(ostinato.torch.compile(whole, x), module, x)
    assert_alike(ostinato.torch.compile(part, x), cell, x)
    for backend in (dynamo.backend, "eager"):
        torch._dynamo.reset()
        assert_alike(torch.compile(whole, backend=backend, fullgraph=True), module, x)


def test_an_exported_program() -> None:
    module, x = torch.nn.Linear(4, 3), torch.randn(2, 4)
    call = ostinato.torch.compile(torch.export.export(module, (x,)), x)
    torch.testing.assert_close(call(x), module(x))
    call(x).sum().backward()
    assert all(p.grad is not None for p in call.parameters())


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torchscript_is_refused_by_name() -> None:
    x = torch.randn(2, 4)
    traced = torch.jit.trace(torch.nn.Linear(4, 4), x)
    with pytest.raises(UnsupportedError, match=r"'1' is TorchScript.*TS2EPConverter"):
        ostinato.torch.compile(torch.nn.Sequential(torch.nn.Tanh(), traced), x)
    with pytest.raises(UnsupportedError, match="it is TorchScript"):
        ostinato.torch.compile(traced, x)


def test_a_refusal_logs_nothing_beside_its_message(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnsupportedError, match="same reduction dim"):
        ostinato.torch.compile(torch.nn.Linear(4, 3), torch.randn(2, 5))
    assert capfd.readouterr() == ("", "")


def test_state_dicts_have_the_keys_of_the_module() -> None:
    def network() -> Any:
        return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).eval()

    module, other, x = network(), network(), torch.randn(3, 4)
    compiled = ostinato.torch.compile(module, x)
    assert list(compiled.state_dict()) == list(module.state_dict())
    assert compiled.state_dict()._metadata == module.state_dict()._metadata
    missing, unexpected = compiled.load_state_dict(other.state_dict())
    assert not missing and not unexpected
    torch.testing.assert_close(compiled(x), other(x))
    # As a part, too.
    whole, plain = torch.nn.Sequential(compiled, torch.nn.Tanh()), torch.nn.Sequential(network())
    assert list(whole.state_dict()) == list(plain.state_dict())
    whole.load_state_dict(plain.state_dict())
    torch.testing.assert_close(compiled(x), plain(x))
    with pytest.raises(RuntimeError, match=r"Missing key.*0\.0\.weight"):
        whole.load_state_dict(module.state_dict())
    missing, _ = whole.load_state_dict({}, strict=False)
    assert missing == [key for key in plain.state_dict() if not key.endswith("tracked")]


def test_attributes_are_set_on_the_module() -> None:
    class Stateful(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("h", torch.zeros(3))

        def forward(self, x: Any) -> Any:
            self.h = self.h + x
            return self.h * 2

    module = Stateful()
    compiled = ostinato.torch.compile(module, torch.ones(3))
    compiled.h = torch.ones(3)
    assert compiled(torch.ones(3)).tolist() == [4, 4, 4]
    assert module.h.tolist() == compiled.h.tolist() == [2, 2, 2]
    compiled.name = "counter"
    assert module.name == "counter"
    del compiled.name
    assert not hasattr(module, "name")


def test_a_part_that_is_replaced_is_compiled() -> None:
    module, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()), torch.randn(3, 4)
    compiled = ostinato.torch.compile(module, x)
    session = compiled.session
    module[0] = torch.nn.Linear(4, 4)
    torch.testing.assert_close(compiled(x), module(x))
    module[0].weight = torch.nn.Parameter(torch.ones(4, 4))
    torch.testing.assert_close(compiled(x), module(x))
    assert compiled.session is not session and compiled.session is compiled.session
    torch.nn.utils.parametrizations.weight_norm(module[0])
    torch.testing.assert_close(compiled(x), module(x))


def test_integers_that_change_are_compiled_for() -> None:
    class Narrow(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("w", torch.randint(-9, 9, (4, 3), dtype=torch.int8))
            self.norm = torch.nn.BatchNorm1d(3)

        def forward(self, x: Any) -> Any:
            return self.norm(x @ self.w.to(x.dtype))

    module, x = Narrow().eval(), torch.randn(5, 4)
    compiled = ostinato.torch.compile(module, x)
    session = compiled.session
    compiled.train()
    compiled(x)
    compiled.eval()
    # What training counts is no part of the model.
    assert compiled.session is session
    compiled.load_state_dict(Narrow().state_dict())
    torch.testing.assert_close(compiled(x), module(x))
    module.w = module.w.flip(0)
    torch.testing.assert_close(compiled(x), module(x))
    assert compiled.session is compiled.session is not session
