"""What a trainer is given by mistake is refused by name, and leaves it as it was."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import ostinato

HEADER = '<ir_version: 9, opset_import: ["": 20]>'
LINEAR = "g (float[N,4] x) => (float[N,3] y) { y = MatMul(x, w) }"
RECURRENT = """
g (float[T, N, 4] x, float[N, 3] h) => (float[T, N, 3] y, float[N, 3] last) {
    last, y = Scan <num_scan_inputs = 1, body = b (float[N, 3] s, float[N, 4] e) =>
        (float[N, 3] n, float[N, 3] k) {
            p = MatMul(e, w)  z = Add(p, s)  n = Tanh(z)  k = Identity(n)
        }> (h, x)
}"""
X = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
Y = np.tanh(X[:, :3])


def trainer(text: str = LINEAR, *arguments: Any, **options: Any) -> ostinato.Trainer:
    model = onnx.parser.parse_model(f"{HEADER} {text}")
    weights = np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return ostinato.Trainer(model, *arguments, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": None}, "loss=None"),
        ({"loss": []}, r"loss=\[\]"),
        ({"lr": "fast"}, "lr='fast'"),
        ({"lr": None}, "lr=None"),
        ({"clip_norm": "short"}, "clip_norm='short'"),
        ({"freeze": None}, "freeze=None: expected a list"),
        ({"freeze": [3]}, r"freeze=\[3\]: expected a list"),
        ({"train": 3}, "train=3: expected a list"),
        ({"outputs": "y"}, "outputs='y': expected a list"),
        ({"outputs": ["y", "y"]}, "outputs: 'y' is there twice"),
        ({"outputs": []}, "all outputs are states"),
        ({"states": ["x"]}, r"states=\['x'\]"),
        ({"states": {"x": "y"}}, "all outputs are states"),
        ({"targets": {"y": ("float33", ("N", 3))}}, "targets=.*float33"),
        ({"targets": {"y": ("float32", (-1, 3))}}, "sizes are numbers"),
        ({"targets": {"y": "float32"}}, "targets=.*expected an element type and a shape"),
        ({"targets": 3}, "targets=3"),
        ({"loss": lambda op, y, t: op.ReduceMean(y["y"], keepdim=0)}, "no attribute 'keepdim'"),
        ({"loss": lambda op, y, t: op.ReduceMean("y", keepdims=0)}, "an operand is 'y'"),
    ],
)
def test_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ostinato.OstinatoError, match=message):
        trainer(**options)


def test_states_that_do_not_fit() -> None:
    with pytest.raises(ostinato.InputError, match=r"'y'.* cannot become 'h'"):
        trainer(RECURRENT, states={"h": "y"})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.step(None), "names of inputs"),
        (lambda t: t.step([X], [Y]), "names of inputs"),
        (lambda t: t.step({"x": X, "learning_rate": np.array(0.5)}, {"y": Y}), "learning_rate"),
        (lambda t: t.step({"x": X, "y_target": Y}, {"y": Y}), "y_target"),
        (lambda t: t.fit(3), "batches: expected a list"),
        (lambda t: t.fit(lambda: None), "batches: expected a list"),
        (lambda t: t.evaluate(None), "batches: expected a list"),
        (lambda t: t.fit([], epochs=-1), "epochs=-1"),
        (lambda t: t.fit([], epochs=1.5), "epochs=1.5"),
        (lambda t: setattr(t, "lr", "x"), "lr='x'"),
        (lambda t: t.parameters.update({"w": [[1], [2, 3]]}), "parameter 'w'"),
    ],
)
def test_calls(call: Callable[[ostinato.Trainer], object], message: str) -> None:
    trained = trainer()
    before = trained.parameters["w"]
    with pytest.raises((ostinato.InputError, ostinato.OptionError), match=message):
        call(trained)
    assert trained.steps == 0
    np.testing.assert_array_equal(trained.parameters["w"], before)


def test_a_trainer_with_states_is_complete_before_its_first_step(tmp_path: Path) -> None:
    x, y = X[:, None], Y[:, None]
    trained = trainer(RECURRENT, states={"h": "last"})
    assert trained.steps == 0
    assert "step 0" in repr(trained)
    trained.checkpoint(tmp_path / "fresh.npz")
    trained.reset()
    trained.parameters["w"] = trained.parameters["w"]
    (loss,) = trained.fit([({"x": x}, {"y": y})])
    trained.restore(tmp_path / "fresh.npz")
    assert trained.steps == 0
    assert trained.step({"x": x}, {"y": y}) == loss


@pytest.mark.parametrize("shape", [(1, 3), ("M", 3)])
def test_targets_are_not_broadcast(shape: tuple[int | str, ...]) -> None:
    trained = trainer(targets={"y": ("float32", shape)})
    with pytest.raises(ostinato.OstinatoError, match="Reshape"):
        trained.step({"x": X}, {"y": np.ones((1, 3), np.float32)})


def test_a_number_agrees_with_the_operands_of_its_type() -> None:
    def hinge(op: Any, outputs: Any, targets: Any) -> Any:
        margin = op.Sub(1, op.Mul(outputs["y"], targets["y"]))
        return op.ReduceMean(op.Where(op.Less(margin, 0), 0, margin), keepdims=0)

    loss = trainer(LINEAR, hinge).step({"x": X}, {"y": Y})
    margin = 1 - X @ trainer().parameters["w"] * Y
    np.testing.assert_allclose(loss, np.maximum(margin, 0).mean(), 1e-6)


@pytest.mark.parametrize("wrong", [-1, 3, -101])
def test_classes_that_do_not_exist(wrong: int) -> None:
    trained = trainer(LINEAR, "cross_entropy")
    assert trained.step({"x": X}, {"y": np.array([0, 1, 2, -100, 1])}) > 0
    with pytest.raises(ostinato.RunError, match="out of range"):
        trained.step({"x": X}, {"y": np.array([0, 1, 2, wrong, 1])})
    assert trained.steps == 1


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_copies_are_refused(duplicate: Callable[[object], object]) -> None:
    with pytest.raises(ostinato.CopyError, match=r"cannot copy or pickle 'Trainer'.*`checkpoint`"):
        duplicate(trainer())


def changed(path: Path, **entries: Any) -> None:
    """Write the checkpoint with other entries; None leaves one out."""
    with np.load(path) as file:
        arrays = {**file, **entries}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-30]),
        lambda path: path.write_bytes(b""),
        lambda path: np.save(path.open("wb"), X),
        lambda path: changed(path, lr=np.array("a")),
        lambda path: changed(path, lr=np.array([1.0, 2.0])),
        lambda path: changed(path, lr=np.array(np.nan)),
        lambda path: changed(path, lr=np.array(-1.0)),
        lambda path: changed(path, **{"value w": None}),
        lambda path: changed(path, **{"value w": np.zeros(3, np.float32)}),
        lambda path: changed(path, **{"value v": np.zeros(3, np.float32)}),
    ],
)
def test_damaged_checkpoints(damage: Callable[[Path], object], tmp_path: Path) -> None:
    trained, path = trainer(), tmp_path / "run.npz"
    trained.checkpoint(path)
    trained.step({"x": X}, {"y": Y})
    before = trained.parameters["w"]
    damage(path)
    with pytest.raises(ostinato.InputError, match=r"run\.npz"):
        trained.restore(path)
    assert trained.steps == 1 and trained.lr == 1e-3
    np.testing.assert_array_equal(trained.parameters["w"], before)


def test_no_changed_bit_of_a_checkpoint_changes_what_is_restored(tmp_path: Path) -> None:
    trained, path = trainer(), tmp_path / "run.npz"
    trained.checkpoint(path)
    before, content = trained.parameters["w"], path.read_bytes()
    random = np.random.default_rng(2)
    refused = 0
    for _ in range(200):
        damaged = bytearray(content)
        damaged[random.integers(len(content))] ^= 1 << random.integers(8)
        path.write_bytes(damaged)
        try:
            trained.restore(path)
        except ostinato.InputError:
            refused += 1
        np.testing.assert_array_equal(trained.parameters["w"], before)
    assert refused > 50


def test_a_checkpoint_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(OSError):
        trainer().checkpoint(folder)
    assert list(tmp_path.iterdir()) == [folder]
