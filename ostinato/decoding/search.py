"""A search for tokens, written as one ONNX Loop around the step of a decoder."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, get_args

import onnx
from onnx import TensorProto, helper

from ostinato.arguments import is_one_of, is_whole, names_of
from ostinato.decoding import choices, prompt
from ostinato.decoding.fragments import PREFIX, STEP, nodes, renamed, take_constants, weights_of
from ostinato.decoding.step import Port, Step, read_step
from ostinato.decoding.values import Values, declared
from ostinato.errors import OptionError
from ostinato.model.load import ModelLike
from ostinato.version import __version__

Method = Literal["greedy", "sample", "beam"]
_INPUTS = ("prompt", "max_tokens", "uniform")


def loop(
    step_model: ModelLike,
    *,
    states: Mapping[str, str],
    token: str | None = None,
    logits: str | None = None,
    position: str | None = None,
    mask: str | None = None,
    initial: Collection[str] = (),
    prefill: bool | None = None,
    method: Method = "greedy",
    max_tokens: int | None = None,
    end_token: int | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: float | None = None,
    beams: int = 4,
    length_penalty: float = 1.0,
) -> onnx.ModelProto:
    """One model that generates tokens, from a model that makes one step. ONNX in, ONNX out.

    The result uses standard operators alone and runs in any runtime.

    step_model: path, bytes, onnx.ModelProto or onnx_ir.Model of opset 13 or newer.
    states: input -> output of the step for everything that is carried: caches, recurrent states.
    token: the input of the last token, int64 or int32 of shape [], [rows], [rows, 1], or of several
        tokens, [rows, S]; by default the only input of integers that nothing else names.
    logits: the output that scores the next token, of shape [tokens], [rows, tokens] or
        [rows, 1, tokens]; by default the only output that is no state.
    position: the input that is told how many tokens came before, if there is one; along an axis of
        tokens, each gets its own number.
    mask: the input of ones as long as all tokens so far, if there is one.
    initial: states whose first value is an input of the result. All others begin with zeros, and
        with no elements along the axes that grow: those with a name other than that of the rows.
    prefill: whether one call of the step reads all tokens of the prompt but the last, in front of
        the loop; by default where the step takes several, [rows, S]. Otherwise the loop reads them
        token by token, and there is one copy of the step.
    method: "greedy" takes the most likely token. "sample" draws from the `top_k` most likely, and
        of these from as few as have probability `top_p` together, after dividing the logits by
        `temperature`. "beam" keeps the `beams` most likely sequences.
    max_tokens: how many tokens are generated at most; by default an input of the result.
    end_token: ends a row, which is filled up with it. The loop ends when all rows have.
    seed: of the numbers drawn by "sample"; without one they are an input of the result.
    length_penalty: sequences of beams are ordered by their log-probability divided by their
        number of tokens to the power of this.

    Inputs of the result: `prompt` int64[rows, length], at least one token long; `max_tokens`
    int64[] unless it was given; `uniform` float32[rows, max_tokens], from [0, 1), for "sample"
    without a seed; those of `initial`; and all other inputs of the step.
    Outputs: `tokens` int64[rows, generated], without the prompt; for "beam"
    int64[rows, beams, generated], best first, and `scores` float32[rows, beams].

    Raises `OptionError` for arguments that do not fit the step or each other and for a step of an
    older opset, and what `load_model` raises.
    """
    if not is_one_of(method, get_args(Method)):
        raise OptionError(f"method is {method!r}, expected one of {', '.join(get_args(Method))}")
    _check_count("max_tokens", max_tokens, 0, "0 or more")
    _check_count("end_token", end_token, -(2**63), "a token")
    first = names_of(initial)
    if first is None:
        raise OptionError(f"initial is {initial!r}, expected a list of names of states")
    step = read_step(step_model, states, token, logits, position, mask)
    _check_initial(step, first)
    prefills = _prefills(step, prefill)
    choice: choices.Choice
    if method == "greedy":
        choice = choices.Greedy()
    elif method == "sample":
        choice = choices.Sample(temperature, top_k, top_p, seed)
    else:
        _require_rows(step)
        choice = choices.Beam(beams, length_penalty)
    return _Search(step, choice, set(first), prefills, max_tokens, end_token).model()


def _require_rows(step: Step) -> None:
    if step.batch is None:
        raise OptionError(
            f"input {step.token.name!r} of the step has no named axis of rows, which beams need"
        )


def _check_count(name: str, count: int | None, least: int, expected: str) -> None:
    if count is not None and not (is_whole(count) and least <= count < 2**63):
        raise OptionError(f"{name} is {count!r}, expected {expected}, an integer of 64 bits")


def _prefills(step: Step, wanted: bool | None) -> bool:
    """Whether one call of the step reads the prompt; `wanted` as `prefill` of `loop`."""
    if wanted is not None and not isinstance(wanted, bool):
        raise OptionError(f"prefill is {wanted!r}, expected True, False or None")
    reason = step.one_at_a_time()
    if wanted and reason is not None:
        raise OptionError(f"prefill needs a step that takes several tokens: {reason}")
    return reason is None if wanted is None else wanted


def _check_initial(step: Step, initial: Collection[str]) -> None:
    names = {before.name for before, _ in step.states}
    for name in initial:
        if name not in names:
            raise OptionError(f"initial names {name!r}, which is no state")
    for before, after in step.states:
        named = step.growing_axes(before) if before.name not in initial else []
        same = [axis for axis in named if before.dims[axis] == after.dims[axis]]
        if len(named) > 1 and same:
            rows = step.batch or "those of the token, which has none"
            raise OptionError(
                f"axis {same[0]} of state {before.name!r} of shape {list(before.dims)} has a name, "
                f"does not grow and is not that of rows ({rows}): give it that name or a size"
            )
    for port in step.others:
        if port.name in _INPUTS:
            raise OptionError(
                f"input {port.name!r} of the step has the name of an input of the result; rename it"
            )


class _Search:
    """The graph being written. Names of the step begin with `STEP`, all others with `PREFIX`."""

    def __init__(
        self,
        step: Step,
        choice: choices.Choice,
        initial: set[str],
        prefills: bool,
        max_tokens: int | None,
        end_token: int | None,
    ) -> None:
        self._step, self._choice = step, choice
        self._initial, self._prefills = initial, prefills
        self._most, self._end = max_tokens, end_token
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outside: Sequence[str] = ()
        self._values = Values(step, f"{PREFIX}rows")

    def model(self) -> onnx.ModelProto:
        """The result."""
        step = self._step
        graph = renamed(step.model.graph, STEP)
        constants = take_constants(graph)
        self._outside = [*weights_of(graph), *(name for node in constants for name in node.output)]
        before, body = [*constants, *self._before(graph)], self._body(graph)
        after = nodes(
            self._choice.after(),
            plain=(*_INPUTS, *self._choice.outputs),
        )
        result = helper.make_graph(
            [*before, self._loop(body), *after],
            f"{step.model.graph.name or 'step'} in a loop",
            self._inputs,
            [
                self._value(name, dtype, dims)
                for name, (dtype, dims) in self._choice.outputs.items()
            ],
            list(graph.initializer),
        )
        result.sparse_initializer.extend(graph.sparse_initializer)
        made = helper.make_model(
            result,
            opset_imports=list(step.model.opset_import),
            ir_version=step.model.ir_version,
            functions=list(step.model.functions),
            producer_name="ostinato",
            producer_version=__version__,
        )
        onnx.checker.check_model(made)
        return made

    # Before the loop

    def _before(self, graph: onnx.GraphProto) -> list[onnx.NodeProto]:
        self._input("prompt", TensorProto.INT64, [choices.ROWS, "prompt_length"])
        if self._most is None:
            self._input("max_tokens", TensorProto.INT64, [])
            most = "most = Identity(max_tokens)"
        else:
            most = f"most = Constant<value = int64 {{{self._most}}}>()"
        for name, (dtype, dims) in self._choice.inputs.items():
            self._input(name, dtype, dims)
        for port in (*self._step.others, *self._given()):
            self._input(port.name, port.dtype, port.dims)
        made = nodes(
            f"""
            zero = Constant<value = int64 {{0}}>()  one = Constant<value = int64 {{1}}>()
            axis = Constant<value_ints = [1]>()  first = Constant<value_ints = [0]>()
            far = Constant<value_ints = [9223372036854775807]>()
            {most}
            size = Shape(prompt)
            given_rows = Gather(size, first)  prompt_length = Gather(size, one)
            """,
            plain=_INPUTS,
        )
        made += self._offset()
        # The loop reads what is left of the prompt.
        whole = "unread = Identity(prompt)  past = Identity(offset)"
        left = prompt.COUNTS if self._prefills else whole
        text = f"""
            {left}  past_size = Unsqueeze(past, first)
            unread_size = Shape(unread)  length = Gather(unread_size, one)
            last = Sub(length, one)  trips = Add(last, most)
            {self._choice.before}
            chosen_0 = Expand(zero, rows)
        """
        if self._end is not None:
            text += f"""
                yes = Constant<value = bool {{1}}>()  no = Constant<value = bool {{0}}>()
                end = Constant<value = int64 {{{self._end}}}>()  done_0 = Expand(no, each)
            """
        made += nodes(text, plain=_INPUTS)
        made += self._first_states(graph)
        for port in self._step.others:
            made += self._spread(port, port.name, STEP + port.name)
        if self._step.mask is not None:
            size = f"{PREFIX}past_size"
            made += self._values.filled(self._step.mask, "one", size, f"{PREFIX}mask_0")
        return made

    def _input(self, name: str, dtype: int, dims: Sequence[int | str]) -> None:
        self._inputs.append(self._value(name, dtype, dims))

    def _value(self, name: str, dtype: int, dims: Sequence[int | str]) -> onnx.ValueInfoProto:
        """An input or output of the result; its rows have the name of those of the step."""
        rows = self._step.batch or 1
        return helper.make_tensor_value_info(
            name, dtype, [rows if dim == choices.ROWS else dim for dim in dims]
        )

    def _spread(self, port: Port, source: str, target: str) -> list[onnx.NodeProto]:
        """A value with a row for each sequence that is searched."""
        axis = self._step.batch_axis(port)
        if not self._choice.spreads or axis is None:
            return nodes("b = Identity(a)", {"a": source, "b": target})
        return nodes(f"b = Gather<axis = {axis}>(a, origin)", {"a": source, "b": target})

    def _given(self) -> list[Port]:
        """The states that are inputs of the result."""
        return [port for port, _ in self._step.states if port.name in self._initial]

    def _offset(self) -> list[onnx.NodeProto]:
        """The number of tokens in the caches that are given."""
        for port in self._given():
            if axes := self._step.growing_axes(port):
                where = f"where = Constant<value = int64 {{{axes[0]}}}>()"
                text = f"{where}  sizes = Shape(past)  offset = Gather(sizes, where)"
                return nodes(text, {"past": port.name})
        return nodes("offset = Identity(zero)")

    def _first_states(self, graph: onnx.GraphProto) -> list[onnx.NodeProto]:
        """The states before the loop."""
        made: list[onnx.NodeProto] = []
        states = {f"{PREFIX}state_{i}": port for i, (port, _) in enumerate(self._step.states)}
        if not self._prefills:
            for name, port in states.items():
                if port.name in self._initial:
                    made += self._spread(port, port.name, name)
                else:
                    made += self._values.zeros(port, name)
            return made
        before = {
            name: port.name if port.name in self._initial else f"{name} at first"
            for name, port in states.items()
        }
        given_rows = Values(self._step, f"{PREFIX}given_rows")
        for name, port in states.items():
            if port.name not in self._initial:
                made += given_rows.zeros(port, before[name])
        after = {name: f"{name} after the prompt" for name in states}
        ends = [*before.values()], [*after.values()]
        made.append(prompt.read(self._step, graph, self._outside, *ends))
        for name, port in states.items():
            made += self._spread(port, after[name], name)
        return made

    # The loop

    def _loop(self, body: onnx.GraphProto) -> onnx.NodeProto:
        carried = [f"{PREFIX}state_{i}" for i in range(len(self._step.states))]
        carried += [f"{PREFIX}{name}_0" for name in self._carried()]
        results = [f"{PREFIX}last_state_{i}" for i in range(len(self._step.states))]
        results += [f"{PREFIX}{name}_n" for name in self._carried()]
        results += [f"{PREFIX}all_{name}" for name in self._choice.collected]
        inputs = [f"{PREFIX}trips", f"{PREFIX}yes" if self._end is not None else "", *carried]
        return helper.make_node("Loop", inputs, results, f"{PREFIX}loop", body=body)

    def _carried(self) -> dict[str, tuple[int, list[None]]]:
        """Element types and ranks of the states of the search itself."""
        carried: dict[str, tuple[int, list[None]]] = {"chosen": (TensorProto.INT64, [None])}
        if self._end is not None:
            carried["done"] = TensorProto.BOOL, [None] * self._choice.rank
        if self._step.mask is not None:
            carried["mask"] = self._step.mask.dtype, [None] * len(self._step.mask.dims)
        return {**carried, **self._choice.carried}

    def _body(self, graph: onnx.GraphProto) -> onnx.GraphProto:
        """A step: the token is fed, the next one chosen."""
        step = self._step
        text = """
            reading = Less(i, length)  at = Min(i, last)
            given = Gather<axis = 1>(source, at)  fed = Where(reading, given, chosen)
            number = Add(i, past)  numbers = Add(number, one)
            choosing = GreaterOrEqual(i, last)
        """
        made = nodes(text)
        made += self._fed()
        if step.position is not None:
            made += self._values.filled(step.position, "number", 1, STEP + step.position.name)
        if step.mask is not None:
            # It grows like a cache: what a step appends is stored in place.
            (axis,) = step.growing_axes(step.mask)
            made += self._values.filled(step.mask, "one", 1, f"{PREFIX}mask_piece")
            joined = {"mask_next": STEP + step.mask.name}
            made += nodes(f"mask_next = Concat<axis = {axis}>(mask, mask_piece)", joined)
            made += nodes("mask_next = Identity(a)", {"a": STEP + step.mask.name})
        made += graph.node
        made += self._row()
        made += nodes(self._choice.choose(self._vocabulary(), self._end is not None), plain=_INPUTS)
        made += nodes("proceed = Identity(go)" if self._end is None else choices.PROCEED)
        inputs = [
            helper.make_tensor_value_info(f"{PREFIX}i", TensorProto.INT64, []),
            helper.make_tensor_value_info(f"{PREFIX}go", TensorProto.BOOL, []),
        ]
        outputs = [helper.make_tensor_value_info(f"{PREFIX}proceed", TensorProto.BOOL, [])]
        for number, (before, after) in enumerate(step.states):
            inputs.append(declared(STEP + before.name, before))
            name = f"{PREFIX}next_state_{number}"
            made += self._kept(before, STEP + after.name, name)
            outputs.append(declared(name, after))
        for name, (dtype, dims) in self._carried().items():
            inputs.append(helper.make_tensor_value_info(PREFIX + name, dtype, dims))
            outputs.append(helper.make_tensor_value_info(f"{PREFIX}{name}_next", dtype, dims))
        for name, (dtype, dims) in self._choice.collected.items():
            outputs.append(helper.make_tensor_value_info(PREFIX + name, dtype, dims))
        return helper.make_graph(made, "decoding step", inputs, outputs)

    def _fed(self) -> list[onnx.NodeProto]:
        """The token as the step takes it."""
        port = self._step.token
        shaped = ("Squeeze(fed)", "Identity(fed)", "Unsqueeze(fed, axis)")[len(port.dims)]
        return nodes(
            f"shaped = {shaped}  token = Cast<to = {port.dtype}>(shaped)",
            {"token": STEP + port.name},
        )

    def _row(self) -> list[onnx.NodeProto]:
        """The logits of the next token as float32[rows, tokens]."""
        port = self._step.logits
        one_axis = ("Unsqueeze(all, first)", "Identity(all)")
        text = (
            "end_of_row = Constant<value = int64 {-1}>()  row = Gather<axis = 1>(all, end_of_row)"
            if len(port.dims) == 3
            else f"row = {one_axis[len(port.dims) - 1]}"
        )
        return nodes(f"{text}  scored = Cast<to = 1>(row)", {"all": STEP + port.name})

    def _vocabulary(self) -> int | None:
        size = self._step.logits.dims[-1]
        return size if isinstance(size, int) else None

    def _kept(self, port: Port, source: str, target: str) -> list[onnx.NodeProto]:
        """The next value of a state, in the order of the sequences that go on."""
        axis = self._step.batch_axis(port)
        if not self._choice.spreads:
            return nodes("b = Identity(a)", {"a": source, "b": target})
        if axis is None:
            raise OptionError(
                f"state {port.name!r} of shape {list(port.dims)} has no axis {self._step.batch!r} "
                "of rows, which beams need"
            )
        return nodes(f"b = Gather<axis = {axis}>(a, going)", {"a": source, "b": target})
