"""Cuts a model into what compiles now, what compiles later and what has no native form."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from ostinato.codegen.artifact import UNDEFINED, UNKNOWN_RANK, Argument, element_dtype
from ostinato.errors import ModelError, UnsupportedError, translated
from ostinato.graph.size_arithmetic import FUNCTIONS
from ostinato.model.attributes import describe
from ostinato.model.captures import captures, closed, mentioned, with_inner
from ostinato.model.declarations import map_type, overridable
from ostinato.model.graphs import operands, upstream
from ostinato.model.load import load_model
from ostinato.model.names import Names
from ostinato.model.types import type_text
from ostinato.model.values import constant_array
from ostinato.native.arguments import numpy_dtype
from ostinato.ops.core.builder import Builder
from ostinato.ops.core.constants import Room
from ostinato.ops.core.registry import UnknownFormError, UnknownOperandError
from ostinato.ops.core.requirements import UnboundedError
from ostinato.ops.core.sizes import LIMIT, REDUCTIONS
from ostinato.ops.core.tensor import Absent, Joined, Shape, Stack, Tensor, TensorSequence, Value
from ostinato.ops.lowering import Lowerer, Scope
from ostinato.program.expr import DTYPES, INTEGERS
from ostinato.program.nodes import Program
from ostinato.sizes.dims import Dim, Size, product, symbol, symbols
from ostinato.stages.one_node import graph_model
from ostinato.stages.report import listed
from ostinato.stages.stage import FallbackStage, ListStage


@dataclass(frozen=True)
class Segment:
    """Nodes that became one native program."""

    program: Program


@dataclass(frozen=True)
class Choice:
    """A node that runs one of two graphs, each of them cut into parts of its own.

    name: what errors call the node. condition: names the value that chooses the first.
    """

    name: str
    condition: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    branches: tuple[Partition, Partition]


@dataclass
class Partition:
    """The parts in the order they run, and the values they need from nowhere else."""

    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    overridable: tuple[Argument, ...]
    parts: list[Segment | FallbackStage | ListStage | Choice] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def whole(self) -> Iterator[Segment | FallbackStage | ListStage]:
        """All parts, those of the branches of a choice in its place."""
        for part in self.parts:
            if isinstance(part, Choice):
                for branch in part.branches:
                    yield from branch.whole()
            else:
                yield part


def partition(model: ir.Model, fallback: bool, guarded: bool = False, seed: int = 0) -> Partition:
    """Lower what has a native form. With `fallback` false all nodes without one are refused.

    With `guarded`, programs may be specialised for the likely sizes behind guards. All
    random numbers depend on `seed`.

    Where a node needs to know an operand, and the elements of some small integer values would tell
    it, all is lowered anew with these elements as run-time sizes, until no node asks for more.
    """
    valued: set[ir.Value] = set()
    while True:
        attempt = _Partitioner(model, fallback, frozenset(valued), guarded, seed)
        result = attempt.run()
        if not attempt.wanted:
            return result
        valued |= attempt.wanted


def shape_of(value: ir.Value) -> Shape | None:
    """The declared shape, None if the rank is unknown; unnamed dimensions get a name each."""
    if value.shape is None:
        return None
    sizes: list[Size] = []
    for i, dim in enumerate(value.shape):
        name = dim if isinstance(dim, int) else dim.value
        sizes.append(name if isinstance(name, int) else symbol(name or f"{value.name}.{i}"))
    return tuple(sizes)


def dtype_of_value(value: ir.Value) -> str | None:
    """The NumPy name of the element type, or None for what is no tensor of a native type."""
    if value.dtype is None or not isinstance(value.type, ir.TensorType | None):
        return None
    try:
        name = value.dtype.numpy().name
    except TypeError:
        return None
    return name if name in DTYPES else None


def argument(value: ir.Value) -> Argument:
    """How the value is described to users."""
    if isinstance(value.type, ir.TensorType | None) and value.dtype is not None:
        dtype = _element_name(value.dtype)
    else:
        dtype = map_type(value) or type_text(value.type)
    shape = shape_of(value)
    if shape is None:
        return Argument(value.name or "", dtype, UNKNOWN_RANK)
    return Argument(
        value.name or "", dtype, tuple(n if isinstance(n, int) else str(n) for n in shape)
    )


def _element_name(dtype: ir.DataType) -> str:
    if dtype == ir.DataType.UNDEFINED:
        return UNDEFINED
    return "string" if dtype == ir.DataType.STRING else str(dtype.numpy().name)


# Elements of these types can be sizes, or conditions that sizes depend on.
_SIZE_DTYPES = frozenset((*INTEGERS, "bool")) - {"uint64"}
# Shapes are computed by fewer operators than this.
_MOST_VALUES = 200
# Operators whose results are sizes, and those that make sizes of sizes.
_OF_SHAPES = frozenset(("Shape", "Size"))
_ARITHMETIC = frozenset(
    (
        *FUNCTIONS,
        *REDUCTIONS,
        *"Identity Concat Squeeze Unsqueeze Reshape Flatten Slice Split Gather".split(),
    )
)


class _Partitioner:
    def __init__(
        self, model: ir.Model, fallback: bool, valued: Set[ir.Value], guarded: bool, seed: int
    ) -> None:
        self._model = model
        self._guarded = guarded
        self._seed = seed
        # Values whose elements are sizes, and those that would have to be in addition.
        self._valued = valued
        self.wanted: set[ir.Value] = set()
        self._graph = model.graph
        self._fallback = fallback
        self._opsets = {domain or "": v for domain, v in model.opset_imports.items()}
        self._names = Names(model)
        self._done: set[ir.Node] = set()
        self._result = Partition(
            tuple(argument(v) for v in self._graph.inputs),
            tuple(argument(v) for v in self._graph.outputs),
            tuple(argument(v) for v in overridable(model)),
        )
        # Values that parts before the current segment have made, and how to declare them.
        self._available: dict[ir.Value, tuple[str, Shape]] = {}
        # The sequences and empty optionals among them, by the tensors they consist of.
        self._forms: dict[ir.Value, Absent | ir.Value | tuple[str, tuple[ir.Value, ...]]] = {}
        # The tensors whose elements are numbers or sizes, and what tells the size of a dimension.
        self._known: dict[ir.Value, Tensor] = {}
        self._origins: dict[str, ir.Value] = {}
        # The sizes that fallback stages tell or that depend on values.
        self._unsure: set[str] = set()
        self._refusals: list[tuple[ir.Node, UnsupportedError]] = []
        self._room = Room()
        self._open()

    def _open(self) -> None:
        self._builder = Builder(self._unsure, self._guarded, self._seed, self._room)
        self._lowerer = Lowerer(self._builder, self._opsets)
        self._scope = Scope()
        self._made: list[ir.Value] = []
        self._lists: list[ListStage] = []

    def run(self) -> Partition:
        for value in self._graph.inputs:
            self._make_available(value)
        for node in self._graph:
            try:
                self._lower_here_or_next(node)
            except UnsupportedError as refusal:
                self.wanted |= self._sources(refusal)
                self._close(final=False)
                self._run_apart(node, refusal)
            self._done.update(with_inner(node))
        self._close(final=True)
        # Once more sizes are wanted, another attempt shows what is refused in the end.
        if self._refusals and not self._fallback and not self.wanted:
            raise _joined(self._refusals)
        return self._result

    def _make_available(self, value: ir.Value) -> None:
        dtype, shape = dtype_of_value(value), shape_of(value)
        if dtype is not None and shape is not None:
            self._set_available(value, dtype, shape)

    def _set_available(self, value: ir.Value, dtype: str, shape: Shape) -> None:
        self._available[value] = (dtype, shape)
        for size in shape:
            self._origins.setdefault(str(size), value)

    def _lower_here_or_next(self, node: ir.Node) -> None:
        """Lower the node; in a segment of its own where sizes have to be known before it runs."""
        try:
            self._lower(node)
        except UnboundedError:
            self._close(final=False)
            self._lower(node)

    def _lower(self, node: ir.Node) -> None:
        inputs = captures(node)
        if any(value in self._valued and self._is_computed_here(value) for value in inputs):
            self._close(final=False)
        mark = self._builder.checkpoint()
        for value in inputs:
            self._declare(value)
        try:
            with translated(f"node {describe(node)!r} ({node.op_type})"):
                self._lowerer.node(self._scope, node)
        except UnsupportedError:
            self._builder.rollback(mark)
            raise
        self._made += [value for value in node.outputs if self._scope.get(value) is not None]

    def _is_computed_here(self, value: ir.Value) -> bool:
        """Whether the current segment makes the value, and only running it tells its elements."""
        lowered = self._scope.get(value)
        if not isinstance(lowered, (Tensor, Joined)):
            return False
        return value in self._made and lowered.known is None

    def _sources(self, refusal: UnsupportedError) -> set[ir.Value]:
        """The values that would have to be sizes for the node not to be refused."""
        if not isinstance(refusal, UnknownOperandError) or refusal.needs_numbers:
            return set()
        new: set[ir.Value] = set()
        for operand in refusal.operands:
            found = self._sources_of(operand)
            if found is not None and found <= self._valued and self._can_be_sizes(operand):
                # What is computed from them is no size: the operand itself has to be one.
                found = {operand}
            if found is None or found <= self._valued:
                return set()
            new |= found - self._valued
        return new

    def _sources_of(self, value: ir.Value) -> set[ir.Value] | None:
        """The small integer values from which this is computed as shapes are, or None."""
        found: dict[ir.Value, set[ir.Value] | None] = {}
        opened: set[ir.Value] = set()

        def below(made: ir.Value) -> list[ir.Value]:
            node = made.producer()
            is_arithmetic = node is not None and node.op_type in _ARITHMETIC
            if not is_arithmetic or self._is_known(made) or len(opened) >= _MOST_VALUES:
                return []
            opened.add(made)
            return operands(made)

        for made in upstream([value], below):
            found[made] = {made} if self._can_be_sizes(made) else None
            if self._is_known(made):
                found[made] = set()
            elif made in opened:
                parts = [found[operand] for operand in operands(made)]
                if all(part is not None for part in parts):
                    found[made] = {source for part in parts for source in part or ()}
        return found[value]

    def _is_known(self, value: ir.Value) -> bool:
        """Whether the elements are numbers, or sizes of shapes."""
        node, lowered = value.producer(), self._scope.get(value) or self._known.get(value)
        has_known = isinstance(lowered, Tensor) and lowered.known is not None
        is_shape = node is not None and node.op_type in _OF_SHAPES
        return constant_array(value) is not None or has_known or is_shape

    def _can_be_sizes(self, value: ir.Value) -> bool:
        """Whether the runtime can read the elements before it plans a call of the next segment."""
        lowered = self._scope.get(value)
        if isinstance(lowered, (Tensor, Joined)):
            dtype, shape = lowered.dtype, lowered.shape
        elif value in self._available:
            dtype, shape = self._available[value]
        else:
            return False
        count = product(shape)
        is_small = isinstance(count, int) and count <= LIMIT
        return is_small and dtype in _SIZE_DTYPES and value.graph is self._graph

    def _declare(self, value: ir.Value) -> None:
        """Let the current segment use an outside value: what is known of it, or an input."""
        if self._scope.get(value) is not None:
            return
        if value in self._known:
            for name in _symbols(self._known[value]):
                self._declare(self._origins[name])
            self._scope[value] = self._known[value]
        elif value in self._forms:
            self._declare_form(value)
        elif value in self._available:
            dtype, shape = self._available[value]
            is_valued = value in self._valued
            tensor = self._builder.input(value.name or "", dtype, shape, is_valued)
            self._scope[value] = tensor
            for name in _symbols(tensor):
                self._origins[name] = value
                self._unsure.add(name)

    def _declare_form(self, value: ir.Value) -> None:
        form = self._forms[value]
        if isinstance(form, Absent):
            self._scope[value] = form
            return
        if not isinstance(form, tuple):
            self._declare(form)
            rows = self._scope.get(form)
            assert isinstance(rows, Tensor)
            self._scope[value] = Stack(rows.dtype, rows)
            return
        dtype, parts = form
        elements: list[Value] = []
        for part in parts:
            self._declare(part)
            element = self._scope.get(part)
            assert isinstance(element, Tensor)
            elements.append(element)
        self._scope[value] = TensorSequence(dtype, tuple(elements))

    def _close(self, final: bool) -> None:
        """End the current segment with what later parts, or the user, need of it."""
        single = final and not self._result.parts
        if single:
            for value in self._graph.inputs:
                if value in self._available:
                    self._declare(value)
            self._declare_outputs()
            # Inputs are declared in the model's order, whatever order nodes asked for them in.
            order = {v.name: i for i, v in enumerate(self._graph.inputs)}
            self._builder.draft.inputs.sort(key=lambda i: order[i.name])
        else:
            for value in self._made:
                if self._needed_later(value) and not self._keep_known(value):
                    self._output(value)
            if final:
                self._keep_constants(self._graph.outputs)
        if self._builder.draft.outputs or single:
            program = self._builder.draft.finish()
            self._result.parts.append(Segment(program))
        self._result.parts += self._lists
        self._open()

    def _declare_outputs(self) -> None:
        for value in self._graph.outputs:
            self._scope[value] = self._lowerer.value(self._scope, value)
            self._output(value)

    def _keep_known(self, value: ir.Value) -> bool:
        """Remember what is known of a value; returns whether that is all of it, in every run."""
        lowered = self._scope.get(value)
        if not isinstance(lowered, Tensor) or lowered.known is None:
            return False
        names = _symbols(lowered)
        if names <= self._origins.keys():
            self._known[value] = Tensor(lowered.dtype, lowered.shape, None, (), lowered.known)
        return not names

    def _keep_constants(self, values: Iterable[ir.Value]) -> None:
        """Give the runtime those of the values that are the same in every run."""
        for value in values:
            array = self._constant(value)
            if array is not None:
                self._result.constants[value.name or ""] = array

    def _constant(self, value: ir.Value) -> np.ndarray | None:
        """The elements of a value that are the same in every run."""
        array = constant_array(value)
        known = self._known.get(value)
        if array is None and known is not None and not _symbols(known):
            array = np.asarray(known.known, numpy_dtype(known.dtype))
        return array

    def _output(self, value: ir.Value) -> None:
        """Hand a value on: an output of the program, or for a sequence one for each element."""
        lowered = self._scope.get(value)
        assert lowered is not None
        if isinstance(lowered, Absent):
            self._forms[value] = lowered
            self._lists.append(ListStage(argument(value), None))
        elif isinstance(lowered, TensorSequence):
            parts = [self._output_element(value, i, e) for i, e in enumerate(lowered.elements)]
            self._forms[value] = lowered.dtype, tuple(parts)
            self._lists.append(ListStage(argument(value), tuple(argument(part) for part in parts)))
        elif isinstance(lowered, Stack):
            part = self._output_element(value, 0, lowered.rows)
            self._forms[value] = part
            self._lists.append(ListStage(argument(value), (argument(part),), is_rows=True))
        else:
            self._output_tensor(value, lowered)

    def _output_element(self, sequence: ir.Value, number: int, element: Value) -> ir.Value:
        """Hand on one tensor of a sequence, as a value of its own."""
        part = ir.Value(
            name=self._names.fresh(f"{sequence.name}[{number}]"),
            type=ir.TensorType(ir.DataType.from_numpy(numpy_dtype(element.dtype))),
            shape=ir.Shape([n if isinstance(n, int) else str(n) for n in element.shape]),
        )
        self._output_tensor(part, element)
        return part

    def _output_tensor(self, value: ir.Value, lowered: Value) -> None:
        declared = dtype_of_value(value)
        if declared is not None and declared != lowered.dtype:
            node = value.producer()
            where = "" if node is None else f"node {describe(node)!r} ({node.op_type}): "
            reason = f"output {value.name!r} is declared {declared}, and computed as"
            raise ModelError(f"{where}{reason} {lowered.dtype}")
        self._builder.output(value.name or "", lowered)
        self._set_available(value, lowered.dtype, _declared(lowered))

    def _needed_later(self, value: ir.Value) -> bool:
        return value.is_graph_output() or any(u.node not in self._done for u in value.uses())

    def _run_apart(self, node: ir.Node, refusal: UnsupportedError) -> None:
        """Let a node without a native form be a part of its own."""
        given = set(self._origins)
        # An attempt that is given up needs no choice.
        choice = None if self.wanted else self._choice(node, refusal)
        if choice is None:
            self._refusals.append((node, refusal))
            self._fall_back(node, refusal)
        else:
            self._result.parts.append(choice)
        for value in node.outputs:
            self._make_available(value)
        self._unsure |= self._origins.keys() - given

    def _choice(self, node: ir.Node, refusal: UnsupportedError) -> Choice | None:
        """An If whose ways are models, so that what is native in them stays native.

        None for other nodes, for ways that are refused, and where the node as a whole is better
        compiled when called: for the forms of what it reads.
        """
        if node.op_type != "If" or node.domain or isinstance(refusal, UnknownFormError):
            return None
        condition = node.inputs[0]
        assert condition is not None
        inputs = captures(node)
        self._keep_constants(inputs)
        try:
            first, second = (self._way(node, name) for name in ("then_branch", "else_branch"))
        except (UnsupportedError, ModelError):
            # Such as a way that reads a value of which no type is known.
            return None
        outputs = tuple(argument(value) for value in node.outputs)
        read = tuple(self._argument(value) for value in inputs)
        return Choice(describe(node), condition.name or "", read, outputs, (first, second))

    def _way(self, node: ir.Node, name: str) -> Partition:
        way = node.attributes[name].as_graph()
        read = set(mentioned(way))
        inputs, constants = [], {}
        for value in captures(node):
            array = self._constant(value)
            if value in read and array is not None:
                constants[value.name or ""] = array
            elif value in read:
                inputs.append(self._argument(value))
        model = load_model(graph_model(ir.to_proto(way), inputs, constants, self._opsets))
        return partition(model, self._fallback, self._guarded, self._seed)

    def _argument(self, value: ir.Value) -> Argument:
        """How a value that earlier parts make is declared."""
        if value not in self._available:
            return argument(value)
        dtype, shape = self._available[value]
        sizes = tuple(n if isinstance(n, int) else str(n) for n in shape)
        return Argument(value.name or "", dtype, sizes)

    def _fall_back(self, node: ir.Node, refusal: UnsupportedError) -> None:
        proto, inputs = closed(node)
        self._keep_constants(inputs)
        stage = FallbackStage(
            proto.SerializeToString(),
            tuple(argument(value) for value in inputs),
            tuple(argument(value) for value in node.outputs if value.name),
            tuple(self._opsets.items()),
            describe(node),
            node.op_type,
            _reason(node, refusal),
        )
        self._result.parts.append(self._specializable(stage, refusal))

    def _specializable(self, stage: FallbackStage, refusal: UnsupportedError) -> FallbackStage:
        """The stage with what it takes to compile it while running, if that is possible."""
        value_keys: tuple[str, ...] = ()
        given = {argument.name for argument in stage.inputs}
        if isinstance(refusal, UnknownOperandError) and refusal.needs_numbers:
            value_keys = refusal.unknown if given.issuperset(refusal.unknown) else ()
        if not value_keys and not isinstance(refusal, UnknownFormError):
            return stage
        if any(made.dtype == UNDEFINED for made in stage.outputs):
            return stage
        structure_keys = tuple(
            a.name for a in stage.inputs if _is_open(a) and a.name not in value_keys
        )
        return dataclasses.replace(stage, value_keys=value_keys, structure_keys=structure_keys)


def _reason(node: ir.Node, refusal: UnsupportedError) -> str:
    """Why a node has no native form, which may be a node in one of its bodies."""
    if isinstance(refusal, UnknownFormError):
        return f"the type of {refusal.node!r} is not native, or only a run tells its rank or length"
    if refusal.node == describe(node):
        return refusal.reason
    return f"node {refusal.node!r} ({refusal.op}) in it: {refusal.reason}"


def _joined(refusals: Sequence[tuple[ir.Node, UnsupportedError]]) -> UnsupportedError:
    """One error for all nodes that are refused; its `unknown` is that of the first."""
    (node, first), *others = refusals
    texts = [f"node {describe(n)!r} ({n.op_type}): {_reason(n, r)}" for n, r in others]
    reason = _reason(node, first)
    more = (listed(texts),) if texts else ()
    return UnsupportedError(describe(node), node.op_type, reason, first.unknown, more)


def _is_open(argument: Argument) -> bool:
    """Whether only a run tells the rank or length of a value, of a type with a native form."""
    element = argument.dtype.replace(")", "").rpartition("(")[2]
    is_open = not argument.is_tensor or argument.shape == UNKNOWN_RANK
    if "map(" in argument.dtype:
        return False
    return is_open and (element == UNDEFINED or element_dtype(element) in DTYPES)


def _declared(value: Value) -> Shape:
    """A shape whose run-time sizes are plain names, to be bound anew by the next segment."""
    return tuple(symbol(str(n)) if isinstance(n, Dim) else n for n in value.shape)


def _symbols(value: Tensor) -> set[str]:
    """The run-time dimensions on which the known elements of a value depend."""
    if value.known is None or value.known.dtype != object:
        return set()
    return {name for n in value.known.flat if isinstance(n, Dim) for name in symbols(n)}
