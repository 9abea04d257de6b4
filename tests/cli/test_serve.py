"""Mistakes in the arguments of `ostinato serve`, which are told before anything is compiled."""

from __future__ import annotations

import pytest

from ostinato.demo import MODEL
from tests.cli.conftest import Invoke


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([MODEL, MODEL], "two models are called 'denoiser': write NAME=MODEL"),
        ([MODEL, "--http-port", -1, "--grpc-port", -1], "nothing is left to serve"),
        ([MODEL, "--http-port", 70000], "less than or equal to 65535"),
        ([MODEL, "--state", "state"], "expected INPUT=OUTPUT"),
        ([MODEL, "--state", "h=a", "--state", "h=b"], "--state: 'h' has two values, a and b"),
    ],
)
def test_arguments_that_cannot_be_served(invoke: Invoke, arguments: list[str], said: str) -> None:
    result = invoke("serve", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
