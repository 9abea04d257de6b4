"""Conditions of a program are known by their messages."""

from __future__ import annotations

from ostinato.program.conditions import guards, messages, telling
from ostinato.program.expr import Axis
from ostinato.program.nodes import Check, Loop, Require
from ostinato.sizes.dims import floordiv, symbol
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


def test_of_checks_of_one_size_the_strictest_tells():
    n, m = symbol("N"), symbol("M")
    points = floordiv(n + 64, 128) * m
    sizes = [
        1000 - 4 * points,
        n - m,
        1000 - 8 * points,
        m - n,
        3 * (n - m) - 2,
        1000 - 8 * points,
        2 * n - 1,
        n - 2,
        1000 - 4 * points - m,
    ]
    checks = [Check(size, f"{number}") for number, size in enumerate(sizes)]
    # 8 points for each byte allow fewer; 3 * (N - M) >= 2 says that N - M is at least 1.
    assert [check.message for check in telling(checks)] == ["2", "3", "4", "7", "8"]
    guard = Check(n - 1, "other sizes", is_guard=True)
    assert telling([guard, Check(n - 2, "size")]) == [guard, Check(n - 2, "size")]
