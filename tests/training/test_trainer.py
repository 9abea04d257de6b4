from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import ostinato
from ostinato import files
from ostinato.compiler import optional_passes
from ostinato.training import SGD, Adam, Momentum

HEADER = '<ir_version: 9, opset_import: ["": 20]>'
Arrays = dict[str, np.ndarray]


def parse(text: str, weights: dict[str, tuple[int, ...]], dtype: str = "float32"):
    model = onnx.parser.parse_model(f"{HEADER} {text}")
    random = np.random.default_rng(0)
    for name, shape in weights.items():
        array = (0.3 * random.standard_normal(shape)).astype(dtype)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


PERCEPTRON = """
g (float[N, 4] x) => (float[N, 3] y) {
    h = MatMul(x, w1)  hb = Add(h, b1)  a = Tanh(hb)  o = MatMul(a, w2)  y = Add(o, b2)
}"""
WEIGHTS = {"w1": (4, 8), "b1": (8,), "w2": (8, 3), "b2": (3,)}

# h' = tanh(x w + h r), the last state of a chunk goes on in the next.
RECURRENT = """
g (float[T, N, 4] x, float[N, 5] h) => (float[T, N, 5] y, float[N, 5] last) {
    last, y = Scan <num_scan_inputs = 1, body = b (float[N, 5] s, float[N, 4] e) =>
        (float[N, 5] n, float[N, 5] k) {
            p = MatMul(e, w)  q = MatMul(s, r)  z = Add(p, q)  n = Tanh(z)  k = Identity(n)
        }> (h, x)
}"""


@pytest.fixture
def model() -> onnx.ModelProto:
    return parse(PERCEPTRON, WEIGHTS)


def data(rows: int = 32, seed: int = 1) -> tuple[Arrays, Arrays]:
    x = np.random.default_rng(seed).standard_normal((rows, 4)).astype(np.float32)
    return {"x": x}, {"y": np.sin(2 * x[:, :3])}


def weights_of(model: onnx.ModelProto) -> Arrays:
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", "momentum", "adagrad"])
def test_the_loss_falls(model, optimizer: str) -> None:
    trainer = ostinato.Trainer(model, "mse", optimizer, lr=0.03)
    assert trainer._session.report()["fallback"] == []
    inputs, targets = data()
    losses = [trainer.step(inputs, targets) for _ in range(150)]
    assert losses[-1] < 0.75 * losses[0]
    assert trainer.steps == 150


def test_a_step_of_gradient_descent_is_what_numpy_computes(model) -> None:
    w = weights_of(model)
    trainer = ostinato.Trainer(model, "mse", "sgd", lr=0.5)
    (inputs, targets), x = data(), data()[0]["x"].astype(np.float64)
    a = np.tanh(x @ w["w1"] + w["b1"])
    difference = a @ w["w2"] + w["b2"] - targets["y"]
    loss = trainer.step(inputs, targets)
    np.testing.assert_allclose(loss, (difference**2).mean(), 1e-6)
    dy = 2 * difference / difference.size
    dz = dy @ w["w2"].T * (1 - a * a)
    gradients = {"w1": x.T @ dz, "b1": dz.sum(0), "w2": a.T @ dy, "b2": dy.sum(0)}
    for name, gradient in gradients.items():
        got = trainer.parameters[name]
        np.testing.assert_allclose(got, w[name] - 0.5 * gradient, rtol=0, atol=1e-6)


@pytest.mark.parametrize("most", [0.01, 100.0])
def test_long_gradients_are_clipped(model, most: float) -> None:
    before = weights_of(model)
    inputs, targets = data()
    moves = []
    for clip in (None, most):
        trainer = ostinato.Trainer(model, "mse", "sgd", lr=1.0, clip_norm=clip)
        trainer.step(inputs, targets)
        moves.append({n: before[n] - a for n, a in trainer.parameters.items()})
    plain, clipped = moves
    norm = np.sqrt(sum((move.astype(np.float64) ** 2).sum() for move in plain.values()))
    factor = min(1.0, most / (norm + 1e-6))
    assert (factor < 1) == (most < 1)
    for name, move in clipped.items():
        np.testing.assert_allclose(move, factor * plain[name], rtol=1e-3, atol=1e-6)


def test_ten_steps_are_five_and_a_checkpoint_and_five(model, tmp_path: Path) -> None:
    batches = [data(seed=seed) for seed in range(10)]
    straight = ostinato.Trainer(model, "mse", "adam", lr=0.01)
    losses = [straight.step(*batch) for batch in batches]
    first = ostinato.Trainer(model, "mse", "adam", lr=0.01)
    before = [first.step(*batch) for batch in batches[:5]]
    first.checkpoint(tmp_path / "half.npz")
    second = ostinato.Trainer(model, "mse", "adam", lr=0.5)
    second.restore(tmp_path / "half.npz")
    assert (second.steps, second.lr) == (5, 0.01)
    assert [*before, *(second.step(*batch) for batch in batches[5:])] == losses
    for name, array in straight.parameters.items():
        assert array.tobytes() == second.parameters[name].tobytes()


def test_checkpoints_of_others_are_refused(model, tmp_path: Path) -> None:
    ostinato.Trainer(model, "mse", "adam").checkpoint(tmp_path / "adam.npz")
    trainer = ostinato.Trainer(model, "mse", "sgd")
    with pytest.raises(ostinato.InputError, match="another trainer"):
        trainer.restore(tmp_path / "adam.npz")
    np.savez(tmp_path / "other.npz", a=np.zeros(1))
    (tmp_path / "text.npz").write_text("hello")
    for name in ("other.npz", "text.npz", "missing.npz"):
        with pytest.raises(ostinato.InputError, match="no checkpoint"):
            trainer.restore(tmp_path / name)


def test_the_saved_model_is_the_given_one_with_other_weights(model, tmp_path: Path) -> None:
    trainer = ostinato.Trainer(model, "mse", lr=0.01)
    inputs, targets = data()
    for _ in range(3):
        trainer.step(inputs, targets)
    trainer.save(tmp_path / "trained.onnx")
    saved = onnx.load(tmp_path / "trained.onnx")
    assert [node.op_type for node in saved.graph.node] == [n.op_type for n in model.graph.node]
    for name, array in weights_of(saved).items():
        assert np.array_equal(array, trainer.parameters[name])
        assert not np.array_equal(array, weights_of(model)[name])
    (y,) = ostinato.InferenceSession(saved).run(None, inputs)
    np.testing.assert_allclose(
        ((y - targets["y"]) ** 2).mean(), trainer.evaluate([(inputs, targets)]), rtol=1e-6
    )


@pytest.mark.parametrize("quantize", [None, "int8"])
def test_a_trainer_does_not_depend_on_what_becomes_of_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quantize: str | None
) -> None:
    """Frozen weights are saved again and again, over the model as well."""
    monkeypatch.setattr(files, "READ_UP_TO", 0)
    path, shapes = (
        tmp_path / "m.onnx",
        {"w1": (4, 2048), "b1": (2048,), "w2": (2048, 3), "b2": (3,)},
    )
    onnx.save(parse(PERCEPTRON, shapes), path)
    trainer = ostinato.Trainer(path, "mse", freeze=["w1"], quantize=quantize)
    before = trainer.model.SerializeToString()
    gc.collect()
    assert not files._MAPPED
    path.write_bytes(b"")
    assert trainer.model.SerializeToString() == before


def test_frozen_and_chosen_parameters(model) -> None:
    inputs, targets = data()
    trainer = ostinato.Trainer(model, freeze=["b*", "w1"])
    assert list(trainer.parameters) == ["w2"]
    assert repr(trainer.parameters).startswith("<Parameters w2: float32[")
    trainer.step(inputs, targets)
    after = weights_of(trainer.model)
    changed = [n for n, a in weights_of(model).items() if not np.array_equal(a, after[n])]
    assert changed == ["w2"]
    assert list(ostinato.Trainer(model, train=["w?"]).parameters) == ["w1", "w2"]
    with pytest.raises(ostinato.InputError, match="no initializer fits 'c1'"):
        ostinato.Trainer(model, freeze=["c1"])
    with pytest.raises(ostinato.InputError, match="nothing to train"):
        ostinato.Trainer(model, freeze=["*"])


def test_scalars_and_settings_are_constants() -> None:
    text = """
    g (float[N, 4] x) => (float[N, 4] y) {
        a = Mul(x, scale)  b = Add(a, bias)  y = Mul(b, half)  unused = Add(x, lost)
    }"""
    weights = {"scale": (4,), "bias": (4,), "half": (), "lost": (4,)}
    trainer = ostinato.Trainer(parse(text, weights))
    assert list(trainer.parameters) == ["scale", "bias"]
    assert list(ostinato.Trainer(parse(text, weights), train=["scale", "half"]).parameters) == [
        "scale",
        "half",
    ]


def test_parameters_can_be_set(model) -> None:
    trainer = ostinato.Trainer(model)
    inputs, targets = data()
    trainer.step(inputs, targets)
    trainer.parameters["b2"] = np.ones(3, np.float32)
    assert (trainer.steps, trainer.parameters["b2"].tolist()) == (1, [1, 1, 1])
    with pytest.raises(ostinato.InputError, match=r"'b2'.*\[3\].*\[4\]"):
        trainer.parameters["b2"] = np.ones(4, np.float32)
    with pytest.raises(ostinato.InputError, match="b2"):
        trainer.parameters["b2"] = np.ones(3, np.float64)
    with pytest.raises(ostinato.InputError, match="no parameter is called 'b3'"):
        trainer.parameters["b3"] = np.ones(3, np.float32)


def test_the_learning_rate_counts(model) -> None:
    trainer = ostinato.Trainer(model, optimizer="sgd", lr=0.25)
    inputs, targets = data()
    before = dict(trainer.parameters)
    trainer.lr = 0.0
    trainer.step(inputs, targets)
    assert all(np.array_equal(a, before[n]) for n, a in trainer.parameters.items())
    trainer.lr = 0.25
    trainer.step(inputs, targets)
    assert not any(np.array_equal(a, before[n]) for n, a in trainer.parameters.items())
    with pytest.raises(ostinato.OptionError, match="lr=-1"):
        trainer.lr = -1


@pytest.mark.parametrize("non_finite", ["raise", "skip", "ignore"])
def test_losses_that_are_not_finite(model, non_finite: str) -> None:
    trainer = ostinato.Trainer(model, "mse", non_finite=non_finite)
    inputs, targets = data()
    trainer.step(inputs, targets)
    before = trainer._kept()
    bad = {"x": np.full_like(inputs["x"], np.nan)}
    if non_finite == "raise":
        with pytest.raises(ostinato.RunError, match="step 2 is nan"):
            trainer.step(bad, targets)
    else:
        assert np.isnan(trainer.step(bad, targets))
    same = all(np.array_equal(array, before[name]) for name, array in trainer._kept().items())
    assert same == (non_finite != "ignore")
    assert trainer.steps == (2 if non_finite == "ignore" else 1)


@pytest.mark.parametrize("wrong", ["stop", None, np.ones((2, 3))])
def test_what_losses_that_are_not_finite_do_is_one_of_three(model, wrong: object) -> None:
    with pytest.raises(ostinato.OptionError, match="expected one of"):
        ostinato.Trainer(model, non_finite=wrong)


def test_mistakes_in_the_arguments_of_a_step_are_named(model) -> None:
    trainer = ostinato.Trainer(model)
    inputs, targets = data()
    (name, array), *_ = targets.items()
    for wrong in (array, [array], "abc", 3):
        with pytest.raises(ostinato.InputError, match=f"expected two dicts.*{name}.*got dict and"):
            trainer.step(inputs, wrong)
        with pytest.raises(ostinato.InputError, match="expected two dicts"):
            trainer.evaluate([(inputs, wrong)])
    with pytest.raises(ostinato.InputError, match=r"expected two dicts.*got ndarray and dict"):
        trainer.step(inputs["x"], targets)
    with pytest.raises(ostinato.InputError, match=f"target '{name}' is missing"):
        trainer.step(inputs)
    assert trainer.steps == 0


def test_fit_gives_the_mean_loss_of_each_epoch(model) -> None:
    trainer = ostinato.Trainer(model, lr=0.02)
    batches = [data(seed=seed) for seed in range(4)]
    start = trainer.evaluate(batches)
    means = trainer.fit(batches, epochs=3)
    assert len(means) == 3 and means[2] < means[0] < start
    assert trainer.steps == 12
    assert len(trainer.fit(lambda: iter(batches), epochs=2, progress=False)) == 2
    with pytest.raises(ostinato.InputError, match="iterator"):
        trainer.fit(iter(batches), epochs=2)
    with pytest.raises(ostinato.InputError, match="there are none"):
        trainer.fit([])
    with pytest.raises(ostinato.InputError, match="pairs"):
        trainer.fit([3])
    with pytest.raises(ostinato.InputError, match=r"expected .inputs, targets., got inputs alone"):
        trainer.fit(batches[0])
    with pytest.raises(ostinato.InputError, match="expected a list of them, got dict"):
        trainer.fit(batches[0][0])


def recurrent() -> onnx.ModelProto:
    return parse(RECURRENT, {"w": (4, 5), "r": (5, 5)})


def test_states_pass_from_step_to_step_as_data(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    x = random.standard_normal((6, 3, 4)).astype(np.float32)
    t = random.standard_normal((6, 3, 5)).astype(np.float32)
    trainer = ostinato.Trainer(recurrent(), states={"h": "last"}, outputs=["y"], lr=0.0)
    fed = ostinato.Trainer(recurrent(), outputs=["y"], lr=0.0)
    zeros = np.zeros((3, 5), np.float32)
    whole = ostinato.InferenceSession(recurrent()).run(["y"], {"x": x, "h": zeros})[0]
    first = trainer.step({"x": x[:3]}, {"y": t[:3]})
    assert first == fed.step({"x": x[:3], "h": zeros}, {"y": t[:3]})
    trainer.checkpoint(tmp_path / "state.npz")
    second = trainer.step({"x": x[3:]}, {"y": t[3:]})
    assert second == fed.step({"x": x[3:], "h": whole[2]}, {"y": t[3:]})
    trainer.restore(tmp_path / "state.npz")
    assert trainer.step({"x": x[3:]}, {"y": t[3:]}) == second
    trainer.reset()
    assert trainer.step({"x": x[:3]}, {"y": t[:3]}) == first
    trainer.reset()
    trainer.step({"x": x[:3, :2]}, {"y": t[:3, :2]})
    batches = [({"x": x[:3]}, {"y": t[:3]}), ({"x": x[3:]}, {"y": t[3:]})]
    assert trainer.evaluate(batches) == np.mean([first, second])


def test_a_loss_that_the_model_computes() -> None:
    text = """
    g (float[N, 4] x, float[N, 3] t) => (float loss) {
        y = MatMul(x, w)  d = Sub(y, t)  s = Mul(d, d)
        loss = ReduceSum <keepdims = 0> (s)
    }"""
    inputs, targets = data()
    trainer = ostinato.Trainer(parse(text, {"w": (4, 3)}), "loss", "sgd", lr=1e-3)
    feeds = inputs | {"t": targets["y"]}
    assert trainer.fit([feeds] * 20)[0] > trainer.step(feeds)
    assert trainer.evaluate([feeds]) == trainer.step(feeds)


def test_a_loss_that_is_a_function(model) -> None:
    def half_squares(op, outputs, targets):
        difference = op.Sub(outputs["y"], targets["wanted"])
        weighted = op.Mul(op.Mul(difference, difference), op.Mul(0.5, targets["weight"]))
        return op.ReduceSum(weighted, np.array([0, 1]), keepdims=0)

    shape = ("N", 3)
    trainer = ostinato.Trainer(
        model,
        half_squares,
        targets={"wanted": ("float32", shape), "weight": ("float32", ("N", 1))},
    )
    (inputs, targets), weight = data(), np.linspace(0, 1, 32, dtype=np.float32)[:, None]
    y = ostinato.InferenceSession(model).run(None, inputs)[0].astype(np.float64)
    loss = trainer.step(inputs, {"wanted": targets["y"], "weight": weight})
    np.testing.assert_allclose(loss, (0.5 * weight * (y - targets["y"]) ** 2).sum(), 1e-5)


def test_doubles() -> None:
    text = PERCEPTRON.replace("float[", "double[")
    trainer = ostinato.Trainer(parse(text, WEIGHTS, "float64"), optimizer=Adam(), clip_norm=1.0)
    inputs, targets = data()
    wide = [{n: a.astype(np.float64) for n, a in part.items()} for part in (inputs, targets)]
    losses = [trainer.step(*wide) for _ in range(20)]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("optimizer", [Momentum(nesterov=True), SGD(weight_decay=0.1)])
def test_coefficients(model, optimizer) -> None:
    inputs, targets = data()
    trainer = ostinato.Trainer(model, "mse", optimizer, lr=0.01)
    losses = [trainer.step(inputs, targets) for _ in range(30)]
    assert losses[-1] < losses[0]


def test_what_does_not_fit_is_named(model) -> None:
    inputs, targets = data()
    trainer = ostinato.Trainer(model)
    with pytest.raises(ostinato.InputError, match="target 'y' is missing"):
        trainer.step(inputs)
    with pytest.raises(ostinato.InputError, match="no target is called 'z'"):
        trainer.step(inputs, targets | {"z": targets["y"]})
    for wrong in (targets["y"][:1], targets["y"][:, :1], targets["y"].astype(np.float64)):
        with pytest.raises(ostinato.OstinatoError, match=r"target 'y'"):
            trainer.step(inputs, {"y": wrong})
        with pytest.raises(ostinato.OstinatoError, match=r"target 'y'"):
            trainer.evaluate([(inputs, {"y": wrong})])
    with pytest.raises(ostinato.InputError, match="x"):
        trainer.step({}, targets)
    assert trainer.steps == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loss": "mean"}, "'mean'.*bce_with_logits"),
        ({"loss": "y"}, r"loss 'y' .*\['?N'?, 3\]|one float element"),
        ({"loss": lambda op, outputs, targets: 1.0}, "returned float"),
        ({"loss": lambda op, outputs, targets: op.Foo(outputs["y"])}, "no operator 'Foo'"),
        ({"outputs": ["z"]}, "no output 'z'"),
        ({"states": {"h": "y"}}, "no input 'h'"),
        ({"states": {"x": "z"}}, "no output 'z'"),
        ({"train": ["w3"]}, "no initializer fits 'w3'"),
        ({"freeze": "w1"}, "list of names"),
        ({"optimizer": "lion"}, "'lion'.*adam"),
        ({"clip_norm": 0.0}, "clip_norm=0.0"),
        ({"non_finite": "stop"}, "'stop'"),
        ({"lr": float("nan")}, "lr=nan"),
        ({"threads": 0}, "threads=0"),
        ({"speed": 3}, "unknown option 'speed'"),
    ],
)
def test_options_that_do_not_exist(model, arguments: dict, message: str) -> None:
    with pytest.raises(ostinato.OstinatoError, match=message):
        ostinato.Trainer(model, **arguments)


def test_a_node_without_a_gradient_is_named() -> None:
    text = """
    g (float[N, 4, 4] x) => (float[N] y) { a = Mul(x, w)  y = Det(a) }"""
    with pytest.raises(ostinato.UnsupportedError, match=r"Det.*freeze"):
        ostinato.Trainer(parse(text, {"w": (4, 4)}))


def normalised(form: str = "b = BatchNormalization", mode: str = "") -> onnx.ModelProto:
    text = f"""
    g (float[N, 4] x) => (float[N, 4] y) {{
        a = MatMul(x, w)  {form} (a, scale, bias, mean, variance)  y = Dropout (b, ratio{mode})
    }}"""
    model = parse(text, {"w": (4, 4), "scale": (4,), "bias": (4,)})
    constants = {
        "mean": np.zeros(4, np.float32),
        "variance": np.ones(4, np.float32),
        "ratio": np.array(0.5, np.float32),
        "yes": np.array(True),
    }
    for name, array in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def test_normalisation_and_dropout_are_trained_as_for_inference() -> None:
    model = normalised()
    trainer = ostinato.Trainer(model)
    assert list(trainer.parameters) == ["w", "scale", "bias"]
    inputs, _ = data()
    (y,) = ostinato.InferenceSession(model).run(None, inputs)
    assert trainer.step(inputs, {"y": y}) == pytest.approx(0, abs=1e-12)
    assert trainer.step(inputs, {"y": y + 1}) == pytest.approx(1, rel=1e-2)


def test_nodes_in_training_form_are_refused() -> None:
    with pytest.raises(ostinato.UnsupportedError, match=r"Dropout.*training form"):
        ostinato.Trainer(normalised(mode=", yes"))
    statistics = normalised("b, m, v = BatchNormalization <training_mode = 1>")
    with pytest.raises(ostinato.UnsupportedError, match=r"BatchNormalization.*training form"):
        ostinato.Trainer(statistics)


def test_passes_and_threads_change_no_bit() -> None:
    inputs = {"x": np.random.default_rng(0).standard_normal((6, 3, 4)).astype(np.float32)}
    inputs["h"] = np.zeros((3, 5), np.float32)
    targets = {"y": np.ones((6, 3, 5), np.float32)}
    results = []
    for options in ({}, {"disable": optional_passes()}, {"threads": 2}):
        trainer = ostinato.Trainer(recurrent(), outputs=["y"], clip_norm=0.5, **options)
        losses = [trainer.step(inputs, targets) for _ in range(4)]
        results.append((losses, [array.tobytes() for array in trainer.parameters.values()]))
    assert results[0] == results[1] == results[2]
