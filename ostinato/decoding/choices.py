"""Methods to choose the next token: the part of a search that differs, as ONNX text.

Every text may read what the loop around it defines: `i` the number of the step, `scored` the
logits float32[rows, tokens], `chosen`, `done`, `choosing` (whether the prompt has been read), and
the constants `zero`, `one`, `first` = [0], `axis` = [1], `end`, `rows`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from onnx import TensorProto

from ostinato.arguments import is_number, is_whole
from ostinato.errors import OptionError

_NO_LIMIT = 2**62
# Numbers of attributes are float32.
_MOST = 2.0**127
ROWS = "rows"
"""The name of the axis of rows, in place of that of the step."""

Declared = Mapping[str, tuple[int, list[None]]]
"""Values of the body: element types and ranks."""
Named = Mapping[str, tuple[int, list[int | str]]]
"""Inputs or outputs of the result: element types and axes."""

PROCEED = """
    open = Not(done_next)  open_count = Cast<to = 7>(open)
    still = ReduceSum<keepdims = 0>(open_count)  proceed = Greater(still, zero)
"""
_SLOTS = """
    held = GatherElements<axis = 1>(slot, parent)
    held_column = Unsqueeze(held, two)  held_row = Unsqueeze(held, axis)
    alike = Equal(held_column, held_row)  alike_before = And(alike, is_before)
    alike_number = Cast<to = 7>(alike_before)
    before_number = ReduceSum<keepdims = 0>(alike_number, two)
    copies = Greater(before_number, zero)
    is_held = Equal(held_column, order)  held_number = Cast<to = 7>(is_held)
    users = ReduceSum<keepdims = 0>(held_number, axis)  is_free = Equal(users, zero)
    copies_number = Cast<to = 7>(copies)  copy_rank = CumSum<exclusive = 1>(copies_number, one)
    free_number = Cast<to = 7>(is_free)  free_rank = CumSum<exclusive = 1>(free_number, one)
    copy_column = Unsqueeze(copy_rank, two)  free_row = Unsqueeze(free_rank, axis)
    is_turn = Equal(copy_column, free_row)  free_slots = Unsqueeze(is_free, axis)
    is_given = And(is_turn, free_slots)  given_slots = Where(is_given, order, zero)
    free_slot = ReduceSum<keepdims = 0>(given_slots, two)
    slot_next = Where(copies, free_slot, held)
"""
_TOKENS = """
    begin = Unsqueeze(last, first)  made = Slice(all_token, begin, far, first)
"""


class Choice:
    """Base of the methods: by default, one sequence for each row of the prompt.

    rank: of `done`. spreads: whether each row of the prompt becomes several.
    """

    rank: ClassVar[int] = 1
    spreads: ClassVar[bool] = False

    @property
    def inputs(self) -> Named:
        """Further inputs of the result."""
        return {}

    @property
    def outputs(self) -> Named:
        """The outputs of the result."""
        return {"tokens": (TensorProto.INT64, [ROWS, "generated"])}

    @property
    def carried(self) -> Declared:
        """States of the method: `NAME` becomes `NAME_next`, beginning with `NAME_0`."""
        return {}

    @property
    def collected(self) -> Declared:
        """Outputs of each step: `NAME`, after the loop `all_NAME`."""
        return {"token": (TensorProto.INT64, [None])}

    @property
    def before(self) -> str:
        """Define `rows`, what each is to read as `source`, and `each`, the shape of `done`."""
        return "rows = Identity(given_rows)  each = Identity(rows)  source = Identity(unread)"

    def choose(self, vocabulary: int | None, ends: bool) -> str:
        """Define `chosen_next`, what is carried and collected, and with `ends` `done_next`."""
        raise NotImplementedError

    def after(self) -> str:
        """Define the outputs: steps become the last axis."""
        return f"{_TOKENS} tokens = Transpose<perm = [1, 0]>(made)"


def _ended(ends: bool) -> str:
    """Rows that have ended are filled up."""
    if not ends:
        return "chosen_next = Identity(best)  token = Identity(best)"
    return """
        chosen_next = Where(done, end, best)  token = Identity(chosen_next)
        is_end = Equal(chosen_next, end)  ended = And(is_end, choosing)
        done_next = Or(done, ended)
    """


class Greedy(Choice):
    """The most likely token; the first of several."""

    def choose(self, vocabulary: int | None, ends: bool) -> str:
        """The position of the largest logit."""
        return f"best = ArgMax<axis = 1, keepdims = 0>(scored) {_ended(ends)}"


@dataclass(frozen=True)
class Sample(Choice):
    """A token drawn by inverting the distribution function of the most likely ones."""

    temperature: float
    top_k: int | None
    top_p: float | None
    seed: float | None

    def __post_init__(self) -> None:
        if self.seed is not None and not (is_number(self.seed) and abs(self.seed) < _MOST):
            raise OptionError(f"seed is {self.seed!r}, expected a finite number")
        if not is_number(self.temperature) or not 0 < self.temperature < _MOST:
            raise OptionError(f"temperature is {self.temperature!r}, expected a number above 0")
        if self.top_k is not None and not (is_whole(self.top_k) and 1 <= self.top_k < 2**63):
            raise OptionError(f"top_k is {self.top_k!r}, expected at least 1")
        if self.top_p is not None and not (is_number(self.top_p) and 0 < self.top_p <= 1):
            raise OptionError(f"top_p is {self.top_p!r}, expected a number above 0, at most 1")

    @property
    def inputs(self) -> Named:
        """Numbers in [0, 1), one for each token; none where a seed makes them."""
        if self.seed is not None:
            return {}
        return {"uniform": (TensorProto.FLOAT, [ROWS, "max_tokens"])}

    @property
    def before(self) -> str:
        """Also the numbers, behind one for steps that only read: `uniform` may be empty."""
        if self.seed is not None:
            return super().before
        return f"""
            {super().before}
            column_shape = Concat<axis = 0>(rows, axis)  unused = ConstantOfShape(column_shape)
            draws = Concat<axis = 1>(unused, uniform)
        """

    def choose(self, vocabulary: int | None, ends: bool) -> str:
        """The first token up to which the probabilities add up to the number drawn.

        The number is taken from (0, 1], so that a token of probability 0 is never drawn.
        """
        sorts = self.top_k is not None or self.top_p is not None
        if self.seed is None:
            draw = """
                drawn_before = Sub(i, last)  drawn = Add(drawn_before, one)
                column = Max(drawn, zero)  draw = Gather<axis = 1>(draws, column)
            """
        else:
            seed = float(self.seed)
            draw = f"like = Cast<to = 1>(chosen)  draw = RandomUniformLike<seed = {seed!r}>(like)"
        most = min(self.top_k or _NO_LIMIT, vocabulary or _NO_LIMIT)
        ordered = (
            f"""
                top_k = Constant<value_ints = [{most}]>()
                scored_size = Shape(scored)  there_are = Gather(scored_size, axis)
                kept = Min(top_k, there_are)
                values, places = TopK(warm, kept)
            """
            if sorts
            else "values = Identity(warm)"
        )
        nucleus = (
            f"""
                sum_before = CumSum<exclusive = 1>(likely, one)
                top_p = Constant<value = float {{{self.top_p!r}}}>()
                inside = Less(sum_before, top_p)  nothing = Constant<value = float {{0.0}}>()
                probable = Where(inside, likely, nothing)
            """
            if self.top_p is not None
            else "probable = Identity(likely)"
        )
        found = (
            """
                where = Unsqueeze(index, axis)  picked = GatherElements<axis = 1>(places, where)
                best = Squeeze(picked, axis)
            """
            if sorts
            else "best = Identity(index)"
        )
        return f"""
            temperature = Constant<value = float {{{self.temperature!r}}}>()
            warm = Div(scored, temperature)  {ordered}
            likely = Softmax<axis = 1>(values)  {nucleus}
            sums = CumSum(probable, one)
            end_of_sums = Constant<value_ints = [-1]>()  total = Gather<axis = 1>(sums, end_of_sums)
            {draw}
            unit = Constant<value = float {{1.0}}>()  rest = Sub(unit, draw)
            column_of_rest = Unsqueeze(rest, axis)  level = Mul(column_of_rest, total)
            below = Less(sums, level)  below_as_numbers = Cast<to = 7>(below)
            index = ReduceSum<keepdims = 0>(below_as_numbers, axis)
            {found} {_ended(ends)}
        """


@dataclass(frozen=True)
class Beam(Choice):
    """The most likely sequences: all continuations of some are ordered by their sums of logarithms.

    Each step gives the tokens of its beams and which beams they continue; the sequences are read
    off backwards after the loop, so that nothing is copied that grows but the states.

    Of these, a beam keeps the row of the one that it continues, in whatever order they are; `slot`
    says which row each has. Only where several continue one, all but the first get copies, in the
    rows of those that nobody continues.
    """

    beams: int
    length_penalty: float
    rank: ClassVar[int] = 2
    spreads: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not is_whole(self.beams) or not 1 <= self.beams < 2**31:
            raise OptionError(f"beams is {self.beams!r}, expected at least 1")
        if not is_number(self.length_penalty) or not abs(self.length_penalty) < _MOST:
            given = repr(self.length_penalty)
            raise OptionError(f"length_penalty is {given}, expected a finite number")

    @property
    def outputs(self) -> Named:
        """Sequences and their scores, best first."""
        return {
            "tokens": (TensorProto.INT64, [ROWS, self.beams, "generated"]),
            "scores": (TensorProto.FLOAT, [ROWS, self.beams]),
        }

    @property
    def carried(self) -> Declared:
        """The sum of logarithms, the number of tokens and the row of each sequence."""
        return {
            "slot": (TensorProto.INT64, [None, None]),
            "score": (TensorProto.FLOAT, [None, None]),
            "count": (TensorProto.INT64, [None, None]),
        }

    @property
    def collected(self) -> Declared:
        """The token of each beam, and the number of the beam that it continues."""
        return dict.fromkeys(("token", "parent"), (TensorProto.INT64, [None, None]))

    @property
    def before(self) -> str:
        """Rows of beams, of which the first is the only one that has a score."""
        beams = self.beams
        return f"""
            beams = Constant<value = int64 {{{beams}}}>()
            rows = Mul(given_rows, beams)  rows_number = Squeeze(rows)
            all_rows = Range(zero, rows_number, one)  origin = Div(all_rows, beams)
            source = Gather<axis = 0>(unread, origin)
            order = Range(zero, beams, one)
            beams_axis = Constant<value_ints = [{beams}]>()
            by_beam = Concat<axis = 0>(given_rows, beams_axis)  each = Identity(by_beam)
            is_first = Equal(order, zero)  nothing = Constant<value = float {{0.0}}>()
            least = Constant<value = float {{-1e30}}>()
            first_scores = Where(is_first, nothing, least)  score_0 = Expand(first_scores, by_beam)
            count_0 = Expand(zero, by_beam)  slot_0 = Expand(order, by_beam)
            row_starts = Mul(origin, beams)  nowhere = Expand(zero, by_beam)
            order_column = Unsqueeze(order, axis)  is_before = Less(order, order_column)
        """

    def choose(self, vocabulary: int | None, ends: bool) -> str:
        """The best continuations of all beams of a row."""
        size = (
            f"tokens_in_all = Constant<value = int64 {{{vocabulary}}}>()"
            if vocabulary is not None
            else "scored_size = Shape(scored)  tokens_in_all = Gather(scored_size, one)"
        )
        frozen = (
            """
                each_token = Range(zero, tokens_in_all, one)  is_last = Equal(each_token, end)
                only_end = Where(is_last, nothing, least)
                done_column = Unsqueeze(done, two)  logs = Where(done_column, only_end, by_beams)
            """
            if ends
            else "logs = Identity(by_beams)"
        )
        ended = (
            """
                done_parents = GatherElements<axis = 1>(done, parent)
                open_parents = Not(done_parents)  more = Cast<to = 7>(open_parents)
                is_end = Equal(token, end)  ended = And(is_end, choosing)
                done_next = Or(done_parents, ended)
            """
            if ends
            else "more = Constant<value = int64 {1}>()"
        )
        return f"""
            {size}
            log_rows = LogSoftmax<axis = 1>(scored)
            unknown = Constant<value_ints = [-1]>()  size_axis = Unsqueeze(tokens_in_all, first)
            flat_rows = Constant<value_ints = [-1]>()
            slots = Reshape(slot, flat_rows)  slot_rows = Add(row_starts, slots)
            log_beams = Gather<axis = 0>(log_rows, slot_rows)
            cube = Concat<axis = 0>(by_beam, size_axis)  by_beams = Reshape(log_beams, cube)
            two = Constant<value_ints = [2]>()  {frozen}
            score_column = Unsqueeze(score, two)  sums = Add(score_column, logs)
            flat_size = Concat<axis = 0>(given_rows, unknown)  flat = Reshape(sums, flat_size)
            best, places = TopK<axis = 1>(flat, beams_axis)
            best_parent = Div(places, tokens_in_all)  same = Mul(best_parent, tokens_in_all)
            best_token = Sub(places, same)
            order_of_beams = Expand(order, by_beam)
            parent = Where(choosing, best_parent, order_of_beams)
            token = Identity(best_token)
            score_next = Where(choosing, best, score)
            {ended}
            count_parents = GatherElements<axis = 1>(count, parent)
            counted = Add(count_parents, more)  count_next = Where(choosing, counted, count)
            {_SLOTS}
            chosen_by_slot = ScatterElements<axis = 1>(nowhere, slot_next, token)
            chosen_next = Reshape(chosen_by_slot, flat_rows)
            held_by_slot = ScatterElements<axis = 1>(nowhere, slot_next, held)
            held_rows = Reshape(held_by_slot, flat_rows)  going = Add(row_starts, held_rows)
        """

    def after(self) -> str:
        """Order the sequences and read them off backwards."""
        return f"""
            {_TOKENS} parents_made = Slice(all_parent, begin, far, first)
            counts = Cast<to = 1>(count_n)
            penalty = Constant<value = float {{{self.length_penalty!r}}}>()
            at_least = Constant<value = float {{1.0}}>()  tokens_counted = Max(counts, at_least)
            power = Pow(tokens_counted, penalty)  normal = Div(score_n, power)
            scores, best_last = TopK<axis = 1>(normal, beams_axis)
            none, steps = Scan<
                num_scan_inputs = 2, scan_input_directions = [1, 1], scan_output_directions = [1],
                body = back (int64[r, b] beam, int64[r, b] token_of, int64[r, b] parent_of)
                    => (int64[r, b] beam_before, int64[r, b] token_at) {{
                    token_at = GatherElements<axis = 1>(token_of, beam)
                    beam_before = GatherElements<axis = 1>(parent_of, beam)
                }}>(best_last, made, parents_made)
            tokens = Transpose<perm = [1, 2, 0]>(steps)
        """
