"""Conditions of a program are known by their messages."""

from __future__ import annotations

from ostinato.program.conditions import guards, messages
from ostinato.program.expr import Axis
from ostinato.program.nodes import Check, Loop, Require
from ostinato.sizes.dims import symbol
from tests.program.programs import program


def test_each_message_counts_once_and_guards_are_told_apart():
    required = Require("c", "c must be true")
    guarded = Require("d", "other sizes", is_guard=True)
    loop = Loop(Axis("t", symbol("T")), (), (guarded, required))
    checks = (Check(symbol("T"), "T is at least 0"), Check(1, "one row", is_guard=True))
    source = program({}, {}, (required, loop), checks=checks)
    assert messages(source) == [
        "T is at least 0",
        "one row",
        "c must be true",
        "other sizes",
    ]
    assert guards(source) == ["one row", "other sizes"]
