from __future__ import annotations

import sys

import onnx_ir as ir
import pytest

from ostinato.model.load import load_model
from ostinato.passes.pipeline import PASSES, pass_names, run_passes
from tests.golden import canonical_text, parse

# What each pass reveals to another: the chain ends only if the passes repeat.
LADDER = """
    g (float[1, 2] x, float[2] h) => (float[2] y) <int64[1] one = {1}> {
        s = Shape(x)
        n = Gather(s, one)
        two = Constant <value_ints = [2]> ()
        c = Equal(n, two)
        u = If (c) <
            then_branch = a () => (float[2] p) {
                k = Constant <value_int = 0> ()
                d = Cast <to = 9> (k)
                p = If (d) <
                    then_branch = e () => (float[2] v) { v = Exp(h) },
                    else_branch = f () => (float[2] v) { v = Identity(h) }>
            },
            else_branch = b () => (float[2] q) { q = Neg(h) }>
        v = Scan <num_scan_inputs = 1, body = b (float[2] g, float[2] e) => (float[2] o) {
            i = Exp(e)
            j = Exp(e)
            k = Add(i, j)
            o = Add(g, k)
        }> (u, x)
        y = Identity(v)
    }
    """
FOOT = """
    g (float[1, 2] x, float[2] h) => (float[2] y) <int64[1] scan_axes = {0}> {
        x_step = Squeeze(x, scan_axes)
        i = Exp(x_step)
        k_1 = Add(i, i)
        y = Add(h, k_1)
    }
    """


def test_passes_reveal_work_to_each_other():
    model = load_model(parse(LADDER))
    seen = []
    counts = run_passes(model, observer=lambda name, _: seen.append(name))
    assert canonical_text(ir.to_proto(model)) == canonical_text(parse(FOOT))
    assert counts["fold_if"] == 2 and counts["single_step_scan"] == 1
    assert counts["recurrent_to_scan"] == 0
    assert set(seen) == {name for name, count in counts.items() if count}
    assert run_passes(model) == dict.fromkeys(pass_names(), 0)


@pytest.mark.parametrize("name", pass_names())
def test_a_disabled_pass_does_not_run(name: str):
    counts = run_passes(load_model(parse(LADDER)), disable=(name,))
    assert name not in counts and len(counts) == len(PASSES) - 1


def test_passes_are_described():
    assert len(set(pass_names())) == len(PASSES)
    assert all(item.sentence.endswith(".") for item in PASSES)


def chain(length: int) -> str:
    nodes = "\n".join(f"v{i + 1} = Add(v{i}, w{i})" for i in range(length))
    weights = ", ".join(f"float[1] w{i} = {{{i}}}" for i in range(length))
    return f"g (float[N] v0) => (float[N] v{length}) <{weights}> {{ {nodes} }}"


def _calls_of_passes(nodes: int) -> int:
    model = load_model(parse(chain(nodes)))
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        run_passes(model)
    finally:
        sys.setprofile(None)
    assert len(model.graph) == nodes
    return calls


def test_work_is_linear_in_the_nodes():
    # The first run imports.
    _calls_of_passes(1)
    assert _calls_of_passes(800) < 5 * _calls_of_passes(200)
