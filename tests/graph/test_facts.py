"""The records of operators against what the reference kernels of the onnx package compute."""

from __future__ import annotations

import warnings
from collections import defaultdict
from functools import cache
from typing import Any

import numpy as np
import onnx.reference
import pytest

from ostinato.autodiff import rules as _gradients  # noqa: F401 (its import registers them)
from ostinato.autodiff.registry import RULES as gradients
from ostinato.graph.facts import FACTS, REST, facts_of
from ostinato.ops import LOWERINGS
from ostinato.streaming import rules as _streams  # noqa: F401
from ostinato.streaming.registry import RULES as streams
from tests.node_cases import node_cases

Arrays = list[np.ndarray]
CASES_PER_OPERATOR = 8


@cache
def cases() -> dict[str, list[Any]]:
    """Models of one node in the official suite, with arrays as inputs and outputs."""
    found = defaultdict(list)
    for case in node_cases():
        nodes = [] if case.model is None else case.model.graph.node
        if len(nodes) != 1 or nodes[0].domain or len(found[nodes[0].op_type]) == CASES_PER_OPERATOR:
            continue
        inputs, outputs = case.data_sets[0]
        plain = all(isinstance(a, np.ndarray) and a.dtype.kind in "fiub" for a in inputs + outputs)
        if plain and all(nodes[0].input) and len(inputs) == len(nodes[0].input):
            found[nodes[0].op_type].append(case)
    return found


def run(case: Any, inputs: Arrays) -> Arrays:
    evaluator = onnx.reference.ReferenceEvaluator(case.model)
    feeds = dict(zip(evaluator.input_names, inputs, strict=True))
    return [np.asarray(result) for result in evaluator.run(None, feeds)]


@cache
def each_case(op_type: str) -> list[tuple[Any, Arrays, Arrays]]:
    """Cases, inputs and outputs; skips the test where the suite has none."""
    found = []
    for case in cases()[op_type]:
        inputs = list(case.data_sets[0][0])
        try:
            found.append((case, inputs, run(case, inputs)))
        except (NotImplementedError, RuntimeError):  # no reference kernel for this form
            continue
    if not found:
        pytest.skip("the suite has no case of it that the reference kernels run")
    return found


def named(fact: str) -> list[str]:
    return [name for name in FACTS if getattr(facts_of(name), fact)]


def same(left: np.ndarray, right: np.ndarray) -> bool:
    return np.array_equal(left, right, equal_nan=left.dtype.kind == "f")


def test_every_operator_with_a_rule_has_a_record() -> None:
    for rules in (LOWERINGS, gradients, streams):
        assert not rules.keys() - FACTS.keys()
    operators = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}
    assert not FACTS.keys() - operators


def test_other_domains_have_no_facts() -> None:
    assert facts_of("Add").elementwise and facts_of("Add", "ai.onnx") == facts_of("Add")
    assert not facts_of("Add", "com.example").elementwise


@pytest.mark.parametrize("op_type", [n for n in named("moves") if not facts_of(n).random])
def test_moved_elements_are_those_of_the_sources(op_type: str) -> None:
    facts = facts_of(op_type)
    for case, inputs, outputs in each_case(op_type):
        # Padding by elements of the image is a matter of a mode.
        positions = facts.sources
        if positions[-1:] == (REST,):
            positions = tuple(range(len(inputs)))
        given = {x for i in positions if i < len(inputs) for x in inputs[i].ravel().tolist()}
        if not facts.fills:
            assert {x for y in outputs for x in y.ravel().tolist()} <= given, case.name
        elif given:
            # What is not copied is one number, the fill.
            assert len({x for y in outputs for x in y.ravel().tolist()} - given) <= 1, case.name


@pytest.mark.parametrize("op_type", named("in_order"))
def test_elements_stay_in_order(op_type: str) -> None:
    for case, inputs, outputs in each_case(op_type):
        assert same(outputs[0].ravel(), inputs[0].ravel()), case.name


@pytest.mark.parametrize(
    "op_type", [n for n in named("elementwise") if n not in ("Bernoulli", "Dropout")]
)
def test_an_element_follows_from_those_at_its_place(op_type: str) -> None:
    """The result of operands that are broadcast and shuffled alike is shuffled like them."""
    for case, inputs, outputs in each_case(op_type):
        order = np.random.default_rng(0).permutation(outputs[0].size)
        assert facts_of(op_type).broadcasts or len(inputs) == 1 or op_type == "CastLike"
        wide = inputs[:1] if op_type == "CastLike" else inputs
        mixed = [
            np.broadcast_to(x, outputs[0].shape).reshape(-1)[order].reshape(outputs[0].shape)
            if x.ndim
            else x
            for x in wide
        ]
        (result,) = run(case, [*mixed, *inputs[len(mixed) :]])
        assert same(result.ravel(), outputs[0].ravel()[order]), case.name


@pytest.mark.parametrize("op_type", named("stores"))
def test_what_stores_keeps_the_other_elements(op_type: str) -> None:
    for case, inputs, outputs in each_case(op_type):
        updates = inputs[1 if facts_of(op_type).moves else 2]
        assert outputs[0].shape == inputs[0].shape, case.name
        assert (outputs[0] != inputs[0]).sum() <= updates.size < inputs[0].size, case.name


@pytest.mark.parametrize("op_type", named("total"))
def test_what_is_total_takes_any_number(op_type: str) -> None:
    for case, inputs, _ in each_case(op_type):
        for number in (0, -1, np.nan, np.inf):
            odd = [
                np.full_like(x, number if x.dtype.kind == "f" or number in (0, 1) else 0)
                for x in inputs
            ]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                assert run(case, odd), case.name


def test_seeds_are_of_random_operators() -> None:
    seeded = {s.name for s in onnx.defs.get_all_schemas() if "seed" in s.attributes}
    assert {name for name in seeded if name in FACTS} == set(named("random"))


@pytest.mark.parametrize("op_type", named("settings"))
def test_settings_are_operands(op_type: str) -> None:
    count = max(s.max_input for s in onnx.defs.get_all_schemas_with_history() if s.name == op_type)
    assert all(position < count for position in facts_of(op_type).settings)


@pytest.mark.parametrize("op_type", [n for n in named("like") if not facts_of(n).random])
def test_no_element_counts_of_what_results_are_like(op_type: str) -> None:
    for case, inputs, outputs in each_case(op_type):
        for position in facts_of(op_type).like:
            others = [x if i != position else np.ones_like(x) for i, x in enumerate(inputs)]
            assert all(map(same, run(case, others), outputs)), case.name
