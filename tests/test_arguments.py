"""Arguments of a wrong type are answered by an error of this package that shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import ostinato
from ostinato import InputError, OptionError, decoding, streaming, training
from ostinato.arguments import is_number, is_one_of, is_whole, names_of
from ostinato.autodiff import gradient

ARRAY = np.ones((2, 3), np.float32)
WRONG = (ARRAY, [1], {}, 1j, b"x", np.array("x"), object())
MODEL = onnx.parser.parse_model(
    """<ir_version: 8, opset_import: ["": 17]>
    g (float[1, 3, T] x) => (float l) { a = Tanh(x) l = ReduceSum <keepdims = 0> (a) }"""
)
STEP = onnx.parser.parse_model(
    """<ir_version: 8, opset_import: ["": 17]>
    g (int64[1] t, float[1, 1] h) => (float[1, 3] logits, float[1, 1] n) {
        f = Cast <to = 1> (t) a = Add(f, h) n = Tanh(a)
        w = Constant <value_floats = [1.0, 2.0, 3.0]>() logits = Mul(n, w)
    }"""
)


def loop(**about: Any) -> None:
    given = {"states": {"h": "n"}, "token": "t", "logits": "logits", "max_tokens": 3} | about
    decoding.loop(STEP, **given)


def stream(states: Any) -> None:
    ostinato.InferenceSession(MODEL, cache_dir=None).stream(states)


CALLS = {
    "states": stream,
    "disable": lambda x: ostinato.optimize(MODEL, disable=x),
    "options disable": lambda x: ostinato.Options(disable=x),
    "precision": lambda x: ostinato.Options(precision=x),
    "beta1": lambda x: training.Adam(beta1=x),
    "weight_decay": lambda x: training.SGD(weight_decay=x),
    "optimizer": lambda x: ostinato.Trainer(MODEL, "l", x),
    "loss": lambda x: ostinato.Trainer(MODEL, x),
    "narrow": lambda x: ostinato.Trainer(MODEL, "l", quantize=x),
    "gradient": lambda x: gradient(MODEL, x, ["x"]),
    "context": lambda x: streaming.convert(MODEL, {"x": 2}, context=x),
    "freeze": lambda x: ostinato.Trainer(MODEL, "l", freeze=x),
    "exclude": lambda x: ostinato.quantize(STEP, exclude=x),
    "wrt": lambda x: gradient(MODEL, "l", x),
    "weights": lambda x: ostinato.quantize(MODEL, x),
    "activations": lambda x: ostinato.quantize(MODEL, activations=x),
    "build": lambda x: ostinato.build(MODEL, "nowhere", weights=x),
    "method": lambda x: loop(method=x),
    "initial": lambda x: loop(initial=x),
    "token": lambda x: loop(token=x),
    "mask": lambda x: loop(mask=x),
    "prefill": lambda x: loop(prefill=x),
    "end_token": lambda x: loop(end_token=x),
    "max_tokens": lambda x: loop(max_tokens=x),
    "temperature": lambda x: loop(method="sample", temperature=x),
    "seed": lambda x: loop(method="sample", seed=x),
    "top_k": lambda x: loop(method="sample", top_k=x),
    "beams": lambda x: loop(method="beam", beams=x),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_name_or_number_is_refused(name: str) -> None:
    # An empty mapping has no names.
    lists = ("disable", "options disable", "initial", "states", "exclude", "wrt")
    taken = {} if name in lists else None
    for value in WRONG:
        if type(value) is not type(taken):
            with pytest.raises((OptionError, InputError)):
                CALLS[name](value)


def test_text_is_no_token() -> None:
    """It would become a part of the model."""
    with pytest.raises(OptionError, match="end_token is '3'"):
        loop(end_token="3")


def test_scalars_of_numpy_are_numbers() -> None:
    assert is_number(np.float32(1)) and is_whole(np.int64(1))
    assert not any(is_number(x) or is_whole(x) for x in (True, np.bool_(True), "1", None, ARRAY))
    loop(end_token=np.int64(2), max_tokens=np.int32(3))


def test_options_take_scalars_of_numpy(tmp_path: Path) -> None:
    sizes, threads = {"T": np.int64(3)}, np.int32(1)
    for is_cached in (False, True):
        session = ostinato.InferenceSession(
            MODEL, specialize=sizes, threads=threads, seed=np.uint8(2), cache_dir=tmp_path
        )
        assert session.report()["from_cache"] is is_cached


def test_what_is_no_text_is_no_name() -> None:
    assert is_one_of("a", ("a", "b")) and not is_one_of("c", {"a": 1})
    assert not any(is_one_of(x, {"x": 1}) or is_one_of(x, ("x",)) for x in WRONG)


def test_names_come_from_any_collection() -> None:
    assert names_of(iter(["a", "b"])) == ("a", "b") == names_of({"a": 1, "b": 2})
    assert names_of("ab") is names_of(3) is names_of(["a", 1]) is names_of(np.array("a")) is None
    assert ostinato.Options(disable=(name for name in ["fuse"])).disable == ("fuse",)
