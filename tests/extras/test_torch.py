"""`ostinato.torch` beside PyTorch itself: values, gradients, training, what is refused and why."""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib.metadata
import logging
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")

import ostinato.torch  # noqa: E402
from ostinato.errors import InputError, OptionError, UnsupportedError  # noqa: E402
from ostinato.torch import dynamo  # noqa: E402

pytestmark = pytest.mark.extras
TOLERANCE = 1e-5


class Network(torch.nn.Module):
    """A recurrent layer between dense ones; `kind` names the layer in `torch.nn`."""

    def __init__(self, kind: str, **settings: Any) -> None:
        super().__init__()
        hidden = 10 if "proj_size" in settings else 8
        self.layer = getattr(torch.nn, kind)(6, hidden, **settings)
        self.out = torch.nn.Linear(8 * (1 + settings.get("bidirectional", False)), 3)

    def forward(self, x: Any) -> Any:
        return torch.sigmoid(self.out(torch.relu(self.layer(x)[0])))


class Loop(torch.nn.Module):
    """A cell as a Python loop over time."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.h = torch.nn.Linear(6, 8), torch.nn.Linear(8, 8, bias=False)

    def forward(self, x: Any) -> Any:
        h, steps = x.new_zeros(x.shape[1], 8), []
        for t in range(x.shape[0]):
            h = torch.tanh(self.x(x[t]) + self.h(h))
            steps.append(h)
        return torch.stack(steps)


class Counted(Loop):
    """Five steps over the first element alone, as Python counts."""

    def step(self, x: Any, t: Any, h: Any) -> Any:
        return torch.tanh(self.x(x[0] * (t + 1)) + self.h(h))

    def forward(self, x: Any) -> Any:
        h = x.new_zeros(x.shape[1], 8)
        for t in range(5):
            h = self.step(x, t, h)
        return h


class While(Counted):
    """The same over `torch.while_loop`."""

    def forward(self, x: Any) -> Any:
        def body(t: Any, h: Any) -> Any:
            return t + 1, self.step(x, t, h)

        start = torch.zeros((), dtype=torch.int64), x.new_zeros(x.shape[1], 8)
        return torch._higher_order_ops.while_loop(lambda t, h: t < 5, body, start)[1]


class Scan(Loop):
    """The same over `scan`."""

    def forward(self, x: Any) -> Any:
        def step(h: Any, element: Any) -> Any:
            h = torch.tanh(self.x(element) + self.h(h))
            return h, h.clone()

        from torch._higher_order_ops.scan import scan

        return scan(step, x.new_zeros(x.shape[1], 8), x)[1]


NETWORKS: dict[str, Callable[[], Any]] = {
    "GRU": lambda: Network("GRU"),
    "GRU two layers": lambda: Network("GRU", num_layers=2, batch_first=True),
    "LSTM both ways": lambda: Network("LSTM", bidirectional=True),
    "RNN": lambda: Network("RNN", nonlinearity="relu"),
    "loop": Loop,
    "scan": Scan,
    "LSTM with projection": lambda: Network("LSTM", proj_size=8, bidirectional=True),
}


def gradients(call: Any, x: Any, parameters: list[Any]) -> tuple[Any, list[Any]]:
    x = x.clone().requires_grad_()
    y = call(x)
    return y.detach(), list(torch.autograd.grad((y * y.sin()).sum(), [x, *parameters]))


def close(expected: Any, got: Any) -> None:
    assert got.shape == expected.shape and got.dtype == expected.dtype
    assert float((got - expected).abs().max()) <= TOLERANCE * float(expected.abs().max())


@pytest.mark.parametrize("name", list(NETWORKS))
@pytest.mark.parametrize("through", ["compile", "dynamo"])
def test_values_and_gradients_are_those_of_torch(name: str, through: str) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    module, x = NETWORKS[name](), torch.randn(7, 3, 6)
    if through == "compile":
        compiled = ostinato.torch.compile(module, x)
    else:
        compiled = torch.compile(module, backend=dynamo.backend, fullgraph=True)
    expected = gradients(module, x, list(module.parameters()))
    got = gradients(compiled, x, list(module.parameters()))
    close(expected[0], got[0])
    for a, b in zip(expected[1], got[1], strict=True):
        close(a, b)


def test_while_loop() -> None:
    module, counted, x = While(), Counted(), torch.randn(7, 3, 6)
    counted.load_state_dict(module.state_dict())
    # The gradient of torch's own while_loop is not that of the same loop in Python (torch 2.13).
    expected = gradients(counted, x, [*counted.parameters()])
    got = gradients(ostinato.torch.compile(module, x), x, [*module.parameters()])
    close(expected[0], got[0])
    for a, b in zip(expected[1], got[1], strict=True):
        close(a, b)


def test_training_changes_the_parameters_of_the_module() -> None:
    torch.manual_seed(0)
    module = Network("GRU")
    other = Network("GRU")
    other.load_state_dict(module.state_dict())
    x, target = torch.randn(9, 2, 6), torch.rand(9, 2, 3)
    losses = []
    for call, owner in (
        (ostinato.torch.compile(module, x), module),
        (other, other),
    ):
        optimizer = torch.optim.Adam(owner.parameters(), 1e-2)
        found = []
        for _ in range(10):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(call(x), target)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        losses.append(found)
    assert losses[0][-1] < losses[0][0]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_parameters_that_get_other_memory_are_read_there() -> None:
    module, x = torch.nn.Linear(4, 4, bias=False), torch.randn(2, 4)
    compiled = ostinato.torch.compile(module, x)
    with torch.no_grad():
        close(module(x), compiled(x))
        module.weight.data = module.weight.data.t()
        close(module(x), compiled(x))
        module.weight.data = torch.randn(4, 4)
        close(module(x), compiled(x))
        module.weight = torch.nn.Parameter(torch.randn(4, 4))
        close(module(x), compiled(x))


@pytest.mark.parametrize("name", ["GRU", "LSTM both ways", "RNN", "LSTM with projection"])
def test_any_length_and_batch(name: str) -> None:
    module = NETWORKS[name]().eval()
    compiled = ostinato.torch.compile(module, torch.randn(5, 3, 6), dynamic=True)
    for length, batch in ((2, 2), (11, 4)):
        x = torch.randn(length, batch, 6)
        expected = gradients(module, x, list(module.parameters()))
        got = gradients(compiled, x, list(module.parameters()))
        close(expected[0], got[0])
        for a, b in zip(expected[1], got[1], strict=True):
            close(a, b)


def test_dynamo_compiles_lengths_that_change_once(caplog: pytest.LogCaptureFixture) -> None:
    torch._dynamo.reset()
    module = Network("LSTM").eval()
    seen: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        seen.append(graph)
        return dynamo.backend(graph, inputs)

    compiled = torch.compile(module, backend=backend)
    with torch.no_grad(), caplog.at_level(logging.WARNING, "ostinato"):
        for length in (5, 6, 9, 12):
            x = torch.randn(length, 3, 6)
            close(module(x), compiled(x))
    assert len(seen) == 2 and not caplog.messages


def test_torch_finds_the_backend_by_its_name() -> None:
    names = importlib.metadata.entry_points(group="torch_dynamo_backends").names
    if "ostinato" not in names:
        pytest.skip("the package is not installed here, only found by its path")
    torch._dynamo.reset()
    module, x = Network("GRU").eval(), torch.randn(5, 2, 6)
    with torch.no_grad():
        close(module(x), torch.compile(module, backend="ostinato", options={"threads": 1})(x))


def test_an_option_that_does_not_exist_is_an_error() -> None:
    graph = torch.fx.symbolic_trace(torch.nn.ReLU())
    with pytest.raises(OptionError, match="no 'nothing'"):
        dynamo.backend(graph, [torch.ones(2)], options={"nothing": 1})


class Branching(torch.nn.Module):
    """Python decides by what is computed."""

    def forward(self, x: Any) -> Any:
        y = x * 2
        if y.sum() > 0:
            return y.relu()
        return y - 1


def test_control_flow_that_depends_on_data_is_refused_with_its_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(UnsupportedError, match=r"test_torch.py:\d+, in forward: if y.sum\(\) > 0"):
        ostinato.torch.compile(Branching(), torch.ones(3))
    assert "def forward" not in capsys.readouterr().err


def test_dynamo_breaks_the_graph_there_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(Branching(), backend=dynamo.backend)
    with caplog.at_level(logging.WARNING, "ostinato"):
        for x in (torch.ones(3), -torch.ones(3)):
            close(Branching()(x), compiled(x))
    assert any("breaks at" in text and "if y.sum() > 0" in text for text in caplog.messages)


def test_a_while_loop_that_data_ends_has_the_gradient_of_its_steps(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Until(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.while_loop(lambda x: x.square().sum() < 99, lambda x: (x * x,), (x,))[0]

    class Steps(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            while x.square().sum() < 99:
                x = x * x
            return x

    torch._dynamo.reset()
    compiled = torch.compile(Until(), backend=dynamo.backend, fullgraph=True)
    with caplog.at_level(logging.WARNING, "ostinato"):
        for start in (9.0, 1.5, 1.1):
            x = torch.tensor([start, 0.5, -1.2])
            expected, got = gradients(Steps(), x, []), gradients(compiled, x, [])
            close(expected[0], got[0])
            close(expected[1][0], got[1][0])
    assert not [record for record in caplog.records if record.name.startswith("ostinato")]


def test_a_graph_without_gradient_runs_in_torch(caplog: pytest.LogCaptureFixture) -> None:
    def largest(x: Any) -> Any:
        return x.scatter_reduce(0, torch.tensor([[1, 0, 1]]), x[1:2], "amax")

    torch._dynamo.reset()
    compiled = torch.compile(largest, backend=dynamo.backend)
    x = torch.tensor([[2.0, 1.0, 0.0], [0.5, 3.0, 1.0], [0.0, -1.0, 1.0]])
    with caplog.at_level(logging.WARNING, "ostinato"):
        expected, got = gradients(largest, x, []), gradients(compiled, x, [])
    close(expected[0], got[0])
    close(expected[1][0], got[1][0])
    assert any("runs in PyTorch" in text and "no gradient" in text for text in caplog.messages)


class Negated(torch.autograd.Function):
    """A function whose gradient is not that of what it computes."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return -gradient


class Reversed(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return Negated.apply(x * 2)


def test_a_graph_that_cannot_be_compiled_runs_in_torch(caplog: pytest.LogCaptureFixture) -> None:
    torch._dynamo.reset()
    module, x = Reversed(), torch.randn(2, 4)
    with caplog.at_level(logging.WARNING, "ostinato"):
        _, (gradient,) = gradients(torch.compile(module, backend=dynamo.backend), x, [])
    assert any("runs in PyTorch" in text and "of its own" in text for text in caplog.messages)
    close(gradients(module, x, [])[1][0], gradient)
    with pytest.raises(UnsupportedError, match="Negated"):
        ostinato.torch.compile(module, x)


def test_what_a_call_may_not_be() -> None:
    compiled = ostinato.torch.compile(torch.nn.Linear(4, 4), torch.randn(2, 4))
    with pytest.raises(InputError, match="compile it again for these sizes, or with dynamic=True"):
        compiled(torch.randn(3, 4))
    with pytest.raises(InputError, match=r"is torch.float64, but was torch.float32 when"):
        compiled(torch.randn(2, 4, dtype=torch.float64))
    for arguments in ((), (torch.randn(2, 4), 1), ("x",), (torch.randn(2, 4).to_sparse(),)):
        with pytest.raises(InputError):
            compiled(*arguments)
    with pytest.raises(InputError, match="several example inputs are a tuple"):
        ostinato.torch.compile(torch.nn.GRUCell(4, 4), torch.randn(2, 4), torch.randn(2, 4))


class Remembering(torch.nn.Module):
    """A state that is an attribute."""

    def __init__(self, is_buffer: bool) -> None:
        super().__init__()
        if is_buffer:
            self.register_buffer("state", torch.zeros(4))
        else:
            self.state = torch.zeros(4)

    def forward(self, x: Any) -> Any:
        self.state = self.state * 0.5 + x
        return self.state


def test_a_tensor_that_is_no_buffer_may_not_be_replaced() -> None:
    with pytest.raises(UnsupportedError, match="writes into"):
        ostinato.torch.compile(Remembering(False), torch.randn(3, 4))


def test_what_no_input_of_a_model_can_be_is_refused() -> None:
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.randn(5, 2, 6), [5, 3])
    with pytest.raises(UnsupportedError, match="packed sequence"):
        ostinato.torch.compile(torch.nn.GRU(6, 8), (packed,))
    with pytest.raises(UnsupportedError, match="parameter 'weight' is on the device 'meta'"):
        ostinato.torch.compile(torch.nn.Linear(2, 2, device="meta"), torch.ones(2))


def test_examples_may_be_the_same_tensor() -> None:
    x, other = torch.randn(3), torch.randn(3)
    compiled = ostinato.torch.compile(lambda a, b: a * 2 - b, (x, x))
    close(x * 2 - other, compiled(x, other))
    layer = torch.nn.Linear(3, 3)
    compiled = ostinato.torch.compile(lambda w: layer(w), (layer.weight,))
    close(layer(torch.ones(3, 3)), compiled(torch.ones(3, 3)))


def test_functions_without_a_signature() -> None:
    x = torch.randn(3)
    close(torch.tan(x), ostinato.torch.compile(torch.tan, x)(x))


def test_copies_and_pickles_compile_again() -> None:
    module, x = torch.nn.Linear(4, 4), torch.randn(2, 4)
    compiled = ostinato.torch.compile(module, x)
    for other in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        with torch.no_grad():
            other.module.bias.add_(1)
        close(other.module(x), other(x))
    close(module(x), compiled(x))
    assert compiled.in_features == 4


def test_autocast_counts_as_a_mode() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    x = torch.randn(4, 6)
    compiled = ostinato.torch.compile(module, x)
    parameters = list(module.parameters())
    for enabled, tolerance in ((True, 1e-2), (False, TOLERANCE)):
        found = []
        for each in (module, compiled):
            with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
                y = each(x)
            gradients = torch.autograd.grad(y.float().square().sum(), parameters)
            found.append([y, *gradients])
        torch.testing.assert_close(found[1], found[0], atol=tolerance, rtol=tolerance)


def test_the_mode_of_a_part_counts() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5)).eval()
    compiled, x = ostinato.torch.compile(module, torch.randn(16, 4)), torch.randn(16, 4)
    close(module(x), compiled(x))
    module[1].train()
    assert (compiled(x) == 0).any()


def test_the_length_of_a_tensor_is_a_size() -> None:
    def function(x: Any) -> Any:
        return x.sum(0) / len(x) + torch.arange(len(x)).sum(), len(x)

    compiled = ostinato.torch.compile(function, torch.randn(5, 3), dynamic=True)
    for rows in (4, 7):
        x = torch.randn(rows, 3)
        (mean, length), (expected, _) = compiled(x), function(x)
        close(expected, mean)
        assert length == rows


def test_dynamo_has_nothing_to_compile_of_sizes_alone(caplog: pytest.LogCaptureFixture) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: (len(x), len(x) / 2), backend=dynamo.backend, dynamic=True)
    with caplog.at_level(logging.WARNING, "ostinato"):
        assert [compiled(torch.ones(n, 2)) for n in (4, 6)] == [(4, 2.0), (6, 3.0)]
    assert not caplog.messages


def test_sizes_that_the_program_goes_another_way_for_are_refused() -> None:
    class Choosing(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return (x * 2, x.shape[0]) if x.shape[0] > 5 else (x - 1, 0)

    compiled = ostinato.torch.compile(Choosing(), torch.randn(8, 3), dynamic=True)
    y, size = compiled(torch.ones(7, 3))
    close(torch.full((7, 3), 2.0), y)
    assert size == 7
    with pytest.raises(InputError, match=r"\['x'\].size\(\)\[0\] > 5"):
        compiled(torch.ones(3, 3))
    scaled = ostinato.torch.compile(
        lambda x: x * 2 if int(x.shape[0] * 0.6) > 2 else x, torch.randn(8, 3), dynamic=True
    )
    close(torch.full((7, 3), 2.0), scaled(torch.ones(7, 3)))
    with pytest.raises(InputError, match=r"0\.6\*torch\.sym_float\(\['x'\].size\(\)\[0\]\)\) == 4"):
        scaled(torch.ones(6, 3))
    layer = ostinato.torch.compile(torch.nn.GRU(4, 3), torch.randn(5, 2, 4), dynamic=True)
    with pytest.raises(InputError, match=r"sizes are \[\[5, 4\]\], but when"):
        layer(torch.randn(5, 4))
    unrolled = ostinato.torch.compile(Loop(), torch.randn(9, 2, 6), dynamic=True)
    with pytest.raises(InputError, match=r"size\(\)\[0\] == 9"):
        unrolled(torch.randn(10, 2, 6))


@pytest.mark.parametrize("kind", ["GRU", "RNN"])
def test_a_gradient_of_a_gradient_is_that_of_torch(kind: str) -> None:
    module, x = getattr(torch.nn, kind)(4, 3), torch.randn(5, 2, 4)
    compiled = ostinato.torch.compile(module, x)

    def penalty(call: Any) -> list[Any]:
        given = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(call(given)[0].sum(), given, create_graph=True)
        sources = [given, *module.parameters()]
        return [*torch.autograd.grad((slope.norm() - 1).square(), sources, allow_unused=True)]

    for a, b in zip(penalty(module), penalty(compiled), strict=True):
        if a is not None:
            close(a, b)


def test_a_gradient_of_a_gradient_of_drawn_numbers_is_refused() -> None:
    x = torch.randn(2, 4, requires_grad=True)
    compiled = ostinato.torch.compile(torch.nn.Dropout(0.5), x)
    (slope,) = torch.autograd.grad(compiled(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="gradient of a gradient"):
        slope.sum().backward()


def test_the_fused_encoder_of_torch_has_a_formula(caplog: pytest.LogCaptureFixture) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    module = torch.nn.TransformerEncoderLayer(8, 2, 12, batch_first=True).eval()
    x, mask = torch.randn(2, 5, 8), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with torch.no_grad(), caplog.at_level(logging.WARNING, "ostinato"):
        compiled = torch.compile(module, backend=dynamo.backend)
        for settings in ({}, {"src_key_padding_mask": mask}):
            close(module(x, **settings), compiled(x, **settings))
    assert not caplog.messages


def test_a_transformer_with_masks() -> None:
    module = torch.nn.Transformer(8, 2, 1, 1, 12, dropout=0.0, batch_first=True)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(4)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    args, given = (
        (torch.randn(2, 5, 8), torch.randn(2, 4, 8)),
        {
            "tgt_mask": mask,
            "src_key_padding_mask": padding,
        },
    )
    compiled = ostinato.torch.compile(module, args, example_kwargs=given)
    close(module(*args, **given), compiled(*args, **given))


def test_a_mask_of_a_spectrum() -> None:
    window, width = torch.hann_window(16), torch.nn.Linear(9, 9)

    def forward(x: Any) -> Any:
        spectrum = torch.stft(x, 16, 8, window=window, return_complex=True)
        mask = torch.sigmoid(width(spectrum.abs().mT)).mT
        return torch.istft(spectrum * mask, 16, 8, window=window, length=x.shape[-1])

    x = torch.randn(2, 64)
    expected, got = gradients(forward, x, []), gradients(ostinato.torch.compile(forward, x), x, [])
    close(expected[0], got[0])
    close(expected[1][0], got[1][0])


def test_arguments_and_results_may_be_nested() -> None:
    class Nested(torch.nn.Module):
        def forward(self, pair: Any, *, scale: float) -> Any:
            return {"sum": pair[0] + pair[1], "scaled": [pair[0] * scale, None, len(pair)]}

    pair = (torch.randn(3), torch.randn(3))
    compiled = ostinato.torch.compile(Nested(), (pair,), example_kwargs={"scale": 2.0})
    got = compiled(pair, scale=2.0)
    close(pair[0] + pair[1], got["sum"])
    close(pair[0] * 2, got["scaled"][0])
    assert got["scaled"][1:] == [None, 2]
    with pytest.raises(InputError, match=r"was 2\.0 when"):
        compiled(pair, scale=3.0)


@dataclasses.dataclass
class Scored:
    """A result that PyTorch does not know how to take apart."""

    output: torch.Tensor
    name: str


class Opaque:
    """Holds tensors, at any depth."""

    def __init__(self, output: torch.Tensor, *others: Any) -> None:
        self.outputs, self.others = [{"first": output}], others


def test_functions_and_methods_train_the_modules_that_they_refer_to() -> None:
    net, x = torch.nn.GRU(4, 3), torch.randn(5, 2, 4)

    def doubled(x: torch.Tensor) -> torch.Tensor:
        return net(x)[0] * 2

    for function in (doubled, lambda x: net(x)[0] * 2):
        compiled = ostinato.torch.compile(function, (x,))
        net.load_state_dict(torch.nn.GRU(4, 3).state_dict())
        net.zero_grad()
        compiled(x).sum().backward()
        assert net.weight_hh_l0.grad is not None
        torch.testing.assert_close(compiled(x), function(x))
    torch.testing.assert_close(ostinato.torch.compile(net.forward, (x,))(x)[0], net(x)[0])
    with pytest.raises(InputError, match="got int"):
        ostinato.torch.compile(3, (x,))


def test_dataclasses_and_other_objects_are_results() -> None:
    x = torch.randn(3)
    found = ostinato.torch.compile(lambda x: Scored(x * 2, "twice"), (x,))(x)
    assert type(found) is Scored and found.name == "twice"
    torch.testing.assert_close(found.output, x * 2)
    compiled = ostinato.torch.compile(lambda x: Opaque(x * 2, x.shape[0], "a"), (x,), dynamic=True)
    x = torch.randn(5)
    found, other = compiled(x), compiled(x + 1)
    assert type(found) is Opaque and found.others == (5, "a")
    close(x * 2, found.outputs[0]["first"])
    close(x * 2 + 2, other.outputs[0]["first"])


def test_objects_that_cannot_be_copied_are_refused() -> None:
    def holding(other: Any) -> Any:
        return lambda x: Opaque(x * 2, other)

    for other in (threading.Lock(), torch.nn.ReLU()):
        with pytest.raises(UnsupportedError, match="is returned"):
            ostinato.torch.compile(holding(other), (torch.randn(3),))


def test_a_wrapper_sees_arguments_as_they_were_given() -> None:
    class Wrapped(torch.nn.Module):
        def forward(self, x: Any, scale: Any = 2.0, shift: Any = None) -> Any:
            return x * scale if shift is None else x * scale + shift

    module, x = Wrapped(), torch.randn(3)
    plain = module.forward

    @functools.wraps(plain)
    def forward(*args: Any, **kwargs: Any) -> Any:
        return plain(*args, **{"scale": 3.0, **kwargs})

    module.forward = forward
    close(x * 3, ostinato.torch.compile(module, x)(x))
    compiled = ostinato.torch.compile(module, (x,), example_kwargs={"shift": x})
    close(x * 4, compiled(x, shift=x))


@pytest.mark.parametrize("is_training", [True, False])
def test_function_transforms_are_refused_with_what_to_do(is_training: bool) -> None:
    compiled = ostinato.torch.compile(
        torch.nn.Linear(3, 2).requires_grad_(is_training), torch.ones(4, 3)
    )
    x = torch.zeros(4, 3)
    for call in (
        lambda: torch.func.grad(lambda x: compiled(x).sum())(x),
        lambda: torch.func.vmap(compiled)(x),
    ):
        with pytest.raises(UnsupportedError, match=r"Linear: torch.func.*attribute `module`"):
            call()
    torch.testing.assert_close(torch.func.vmap(compiled.module)(x), compiled(x))
