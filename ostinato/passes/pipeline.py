"""The passes, in the order they run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import onnx_ir as ir

from ostinato.errors import translated
from ostinato.passes.indices.far_slices import far_slices
from ostinato.passes.indices.gather_first import gather_first
from ostinato.passes.indices.gather_to_slice import gather_to_slice
from ostinato.passes.indices.rows_to_gather import rows_to_gather
from ostinato.passes.indices.slice_to_gather import slice_to_gather
from ostinato.passes.indices.split_integers import split_integers
from ostinato.passes.loops.bounded_loop import bounded_loop
from ostinato.passes.loops.chosen_rows import chosen_rows
from ostinato.passes.loops.dead_loop_values import dead_loop_values
from ostinato.passes.loops.fold_if import fold_if
from ostinato.passes.loops.fold_loop import fold_loop
from ostinato.passes.loops.growing_to_scan_output import growing_to_scan_output
from ostinato.passes.loops.indexed_scan_inputs import indexed_scan_inputs
from ostinato.passes.loops.loop_invariants import loop_invariants
from ostinato.passes.loops.loop_to_scan import loop_to_scan
from ostinato.passes.loops.reroll import reroll, reroll_whole_steps
from ostinato.passes.loops.sequence_to_growing import sequence_to_growing
from ostinato.passes.loops.sequence_to_scan_output import sequence_to_scan_output
from ostinato.passes.loops.single_step_scan import single_step_scan
from ostinato.passes.loops.stack_operands import stack_operands
from ostinato.passes.loops.stores_to_concat import stores_to_concat
from ostinato.passes.loops.thread_ifs import thread_ifs
from ostinato.passes.normalise.batched_scan import batched_scan
from ostinato.passes.normalise.byte_constants import byte_constants
from ostinato.passes.normalise.even_blocks import even_blocks
from ostinato.passes.normalise.expand_contributed import expand_contributed
from ostinato.passes.normalise.expand_functions import expand_functions
from ostinato.passes.normalise.expand_ml import expand_ml
from ostinato.passes.normalise.infer_shapes import infer_shapes
from ostinato.passes.normalise.inline_functions import inline_functions
from ostinato.passes.normalise.integer_blocks import integer_blocks
from ostinato.passes.normalise.integer_products import integer_products
from ostinato.passes.normalise.lift_constants import lift_constants
from ostinato.passes.normalise.merge_trees import merge_trees
from ostinato.passes.normalise.number_random import number_random
from ostinato.passes.normalise.recurrent_to_scan import recurrent_to_scan
from ostinato.passes.simplify.constant_folding import constant_folding
from ostinato.passes.simplify.dead_code import dead_code
from ostinato.passes.simplify.eliminate_identity import eliminate_identity
from ostinato.passes.simplify.merge_common_subexpressions import merge_common_subexpressions
from ostinato.passes.simplify.split_to_slice import split_to_slice
from ostinato.passes.simplify.stay_quantised import stay_quantised
from ostinato.records import dataclass


@dataclass(frozen=True)
class Pass:
    """A rewrite of a model in place. `function` returns how many places it changed.

    repeat: it runs again as long as any pass finds something.
    needed: later stages know only what it makes, so compiling cannot leave it out.
    """

    name: str
    function: Callable[[ir.Model], int]
    sentence: str
    repeat: bool = True
    needed: bool = False


def _pass(
    function: Callable[[ir.Model], int], sentence: str, needed: bool = False, repeat: bool = True
) -> Pass:
    return Pass(function.__name__, function, sentence, repeat, needed)


def _once(function: Callable[[ir.Model], int], sentence: str, needed: bool = False) -> Pass:
    return _pass(function, sentence, needed, repeat=False)


PASSES: tuple[Pass, ...] = (
    _once(
        inline_functions,
        "Calls of model-local functions become the nodes of the function.",
        needed=True,
    ),
    _once(
        number_random,
        "Random nodes are numbered, so that each draws numbers of its own.",
        needed=True,
    ),
    _once(
        lift_constants,
        "Constants of every spelling and scope become initializers of the main graph.",
        needed=True,
    ),
    _once(
        byte_constants,
        "Constant integers of less than eight bits that are dequantised or cast become bytes.",
    ),
    _once(
        even_blocks, "Scales of blocks whose last one is not full become those of smaller blocks."
    ),
    _once(
        expand_contributed,
        "Operators that onnxruntime's tools write become those of the standard.",
        needed=True,
    ),
    _once(merge_trees, "Trees that read the same rows, each a node of its own, become one node."),
    _once(expand_ml, "Operators of classical machine learning become those of the standard."),
    _once(
        batched_scan,
        "A Scan of opset 8, over the rows of a batch, becomes two nested Scans.",
        needed=True,
    ),
    _once(recurrent_to_scan, "RNN, GRU and LSTM become a Scan with a plain body.", needed=True),
    _pass(
        infer_shapes, "Types and shapes that follow from the inputs are written beside the values."
    ),
    _pass(
        stay_quantised,
        "Values dequantised, moved and quantised by the same scale are moved as integers.",
    ),
    _pass(
        split_to_slice, "Pieces of a tensor that was split into a sequence are taken by a Slice."
    ),
    _pass(stores_to_concat, "Rows that are stored one after another are put together by a Concat."),
    _pass(
        stack_operands, "Equal nodes whose results are stacked become one node on stacked operands."
    ),
    _pass(reroll, "Steps that are written out one after another become a Scan."),
    _pass(
        expand_functions, "Operators that the standard defines by others become those.", needed=True
    ),
    _pass(constant_folding, "Nodes that move or compute constants exactly become constants."),
    _pass(
        split_integers, "Integers that a Split takes apart, such as a shape, are taken by a Slice."
    ),
    _pass(
        far_slices,
        "A Slice that takes one element, as its steps lead beyond any axis, becomes a Gather.",
    ),
    _pass(rows_to_gather, "GatherND and GatherElements that take whole rows become a Gather."),
    _pass(
        gather_first, "Rows of a constant of a narrow type are gathered first, and widened then."
    ),
    _pass(
        gather_to_slice,
        "Elements at evenly spaced indices that provably exist are taken by a Slice.",
    ),
    _pass(chosen_rows, "A choice among rows of one value becomes rows at chosen positions."),
    _pass(fold_if, "An If that need not choose becomes one of its branches."),
    _pass(
        thread_ifs,
        "An If whose condition an earlier If decides goes into the branches of that one.",
    ),
    _pass(
        bounded_loop,
        "A Loop that counts its steps in a state gets the trip count that its condition allows.",
    ),
    _pass(fold_loop, "A Loop that runs at most once becomes its body, or nothing."),
    _pass(sequence_to_scan_output, "A sequence that a Loop appends to becomes a scan output."),
    _pass(
        growing_to_scan_output,
        "A tensor that a Loop adds a row to in each step becomes a scan output.",
    ),
    _pass(
        sequence_to_growing,
        "A sequence that loops append to and that is joined becomes a tensor that grows.",
    ),
    _pass(slice_to_gather, "A Slice of the one element that belongs to a step becomes a Gather."),
    _pass(loop_to_scan, "A Loop that counts becomes a Scan over its steps."),
    _pass(
        indexed_scan_inputs, "A row that a step of a Scan picks by its number becomes a scan input."
    ),
    _pass(single_step_scan, "A Scan that runs exactly once becomes its body."),
    _pass(dead_loop_values, "Unused states, inputs and outputs of a Scan or Loop are removed."),
    _pass(
        loop_invariants,
        "What is the same in every step, and cannot fail, is computed before the loop.",
    ),
    _pass(eliminate_identity, "Nodes that return their input are removed."),
    _pass(merge_common_subexpressions, "Equal constants and equal computations are kept once."),
    _pass(dead_code, "Nodes on which no output depends are removed."),
)

# Each round of the repeated passes can only reveal work one level of nesting deeper.
_MOST_ROUNDS = 16

Observer = Callable[[str, ir.Model], None]


def pass_names() -> tuple[str, ...]:
    """The names of all passes, in order."""
    return tuple(item.name for item in PASSES)


def with_gradient_nodes(expand: Callable[[ir.Model], int]) -> tuple[Pass, ...]:
    """All passes, first of them `expand`, which replaces Gradient nodes.

    These nodes name values, which other passes rename and remove. The rules of gradients stand on
    the passes, so whoever stands on both hands the function in.
    """
    sentence = "Gradient nodes become the nodes that compute the gradient."
    return Pass("gradient_nodes", expand, sentence, repeat=False, needed=True), *PASSES


def before_gradients(passes: Sequence[Pass]) -> tuple[Pass, ...]:
    """The passes as they run on a model whose gradient is wanted.

    None adds dead values, and none takes the floats away between which integers are moved.
    """
    own = {"reroll": reroll_whole_steps}
    return tuple(
        replace(item, function=own.get(item.name, item.function))
        for item in passes
        if item.function is not stay_quantised
    )


def with_integer_products(passes: Sequence[Pass]) -> tuple[Pass, ...]:
    """The passes, and those of integers behind those that only bring a model into normal form."""
    sentence = "Products of dequantised values become sums of integers, scaled afterwards."
    own = _pass(integer_products, sentence)
    sentence = "Rows that meet weights dequantised in blocks are rounded to bytes, too."
    in_blocks = _pass(integer_blocks, sentence)
    first = next(i for i, item in enumerate(passes) if item.name == "stay_quantised")
    return (*passes[: first + 1], own, in_blocks, *passes[first + 1 :])


def run_passes(
    model: ir.Model,
    disable: Collection[str] = (),
    observer: Observer | None = None,
    passes: Sequence[Pass] = PASSES,
) -> dict[str, int]:
    """Run `passes` on `model`, in place, but those named in `disable`.

    The passes marked `repeat` run again until none of them finds anything. Returns how many
    places each pass changed; `observer(name, model)` is called after each pass that did.
    """
    enabled = [item for item in passes if item.name not in disable]
    changes = dict.fromkeys((item.name for item in enabled), 0)
    total = 0
    # For each pass that found nothing, the changes before: it finds nothing as long as none is
    # added.
    idle: dict[str, int] = {}
    for round_number in range(_MOST_ROUNDS):
        before = total
        for item in enabled:
            if (round_number and not item.repeat) or idle.get(item.name) == total:
                continue
            with translated(f"graph {model.graph.name!r}, pass {item.name!r}"):
                changed = item.function(model)
            changes[item.name] += changed
            total += changed
            if not changed:
                idle[item.name] = total
            elif observer is not None:
                observer(item.name, model)
        if total == before:
            break
    return changes
