from __future__ import annotations

import pytest

from ostinato.errors import ModelError
from ostinato.model.load import load_model
from ostinato.model.nesting import MOST_NESTED


def field(number: int, contents: bytes) -> bytes:
    """A field of a protobuf message that has a length."""
    size, length = len(contents), b""
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + contents


def nested(depth: int) -> bytes:
    """A file of `depth` If nodes, each in a branch of the one before; protobuf cannot write it."""
    graph = field(2, b"innermost")
    for number in reversed(range(depth)):
        attribute = field(1, b"then_branch") + field(6, graph)
        node = field(2, b"o%d" % number) + field(3, b"if_%d" % number) + field(4, b"If")
        graph = field(1, node + field(5, attribute)) + field(2, b"g")
    return field(7, graph)


@pytest.mark.parametrize("depth", [MOST_NESTED + 1, 60, 2000])
def test_the_node_that_is_nested_too_deep_is_named(depth: int) -> None:
    with pytest.raises(ModelError, match=rf"'if_{MOST_NESTED}' \(If\).*more than {MOST_NESTED}"):
        load_model(nested(depth))


def test_less_is_refused_for_other_reasons_only() -> None:
    with pytest.raises(ModelError) as caught:
        load_model(nested(MOST_NESTED))
    assert "nested" not in str(caught.value)


def test_a_file_that_ends_early_is_not_an_onnx_file() -> None:
    with pytest.raises(ModelError, match="not an ONNX file"):
        load_model(nested(60)[: -20 * 60])
