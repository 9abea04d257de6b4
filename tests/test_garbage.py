"""The collector waits while the compiler works, and goes on afterwards."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

from ostinato.garbage import uncollected


@pytest.fixture(autouse=True)
def _collecting() -> Iterator[None]:
    was = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if was else gc.disable)()


def test_it_waits_and_goes_on() -> None:
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="x"), uncollected():
        raise ValueError("x")
    assert gc.isenabled()


def test_who_has_turned_it_off_finds_it_off() -> None:
    gc.disable()
    with uncollected():
        pass
    assert not gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_it_goes_on_in_a_forked_child() -> None:
    with uncollected():
        child = os.fork()
        if child == 0:
            os._exit(0 if gc.isenabled() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
