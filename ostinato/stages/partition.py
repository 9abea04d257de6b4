"""Cut a model into segments that compile now, nodes specialised when called, and fallback nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import field

import onnx_ir as ir

from ostinato.codegen.artifact import Argument
from ostinato.element_types import numpy_dtype
from ostinato.errors import InputError, ModelError, UnsupportedError, translated
from ostinato.guards import Guards
from ostinato.model.attributes import describe
from ostinato.model.captures import captures, mentioned, with_inner
from ostinato.model.declarations import overridable
from ostinato.model.graphs import branches, is_if
from ostinato.model.grown_caches import grown_caches
from ostinato.model.names import Names
from ostinato.model.origins import Origins
from ostinato.ops.core.builder import Builder
from ostinato.ops.core.constants import Room
from ostinato.ops.core.registry import UnknownStructureError
from ostinato.ops.core.requirements import UnboundedError
from ostinato.ops.core.tensor import Absent, Joined, Pieces, Stack, Tensor, TensorSequence, Value
from ostinato.ops.core.together import Together
from ostinato.ops.lowering import Lowerer, Scope
from ostinato.program.nodes import Program
from ostinato.records import dataclass
from ostinato.stages.apart import (
    fallback_stage,
    joined_refusals,
    lookup_stage,
    maps_stage,
    outermost,
)
from ostinato.stages.appended import appended
from ostinato.stages.branch import branch_model
from ostinato.stages.handover import Handover, PieceValues
from ostinato.stages.kept import Hints, KeptStates
from ostinato.stages.ragged import Ragged
from ostinato.stages.shape_operands import ShapeOperands
from ostinato.stages.stage import (
    FallbackStage,
    GrownInput,
    Keeping,
    KeptState,
    ListStage,
    LookupStage,
)
from ostinato.stages.values import argument, computed_sizes, dtype_of_value, plain_shape


@dataclass(frozen=True)
class Segment:
    """Nodes that became one native program."""

    program: Program


@dataclass(frozen=True)
class Choice:
    """A node that runs one of two graphs, each of them cut into parts of its own.

    name: the node in errors. condition: names the value that chooses the first graph.
    """

    name: str
    condition: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    branches: tuple[Partition, Partition]


@dataclass
class Partition:
    """The parts in the order they run, and the values that no part makes.

    shape_operands: small integer values whose elements are sizes of the programs.
    """

    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    overridable: tuple[Argument, ...]
    appended: tuple[tuple[str, str], ...] = ()
    lengths: Mapping[str, str] = field(default_factory=dict)
    kept: tuple[KeptState, ...] = ()
    grown: tuple[GrownInput, ...] = ()
    parts: list[Segment | FallbackStage | ListStage | LookupStage | Choice] = field(
        default_factory=list
    )
    constants: dict[str, ir.TensorProtocol] = field(default_factory=dict)
    shape_operands: frozenset[ir.Value] = frozenset()

    def whole(self) -> Iterator[Segment | FallbackStage | ListStage | LookupStage]:
        """Yield all parts, in place of a choice those of its branches."""
        for part in self.parts:
            if isinstance(part, Choice):
                for branch in part.branches:
                    yield from branch.whole()
            else:
                yield part


def partition(
    model: ir.Model,
    fallback: bool,
    guarded: Guards = Guards.NONE,
    seed: int = 0,
    kept: Keeping | None = None,
    as_one: bool = False,
    together: Together | None = None,
    known: Set[ir.Value] = frozenset(),
    origins: Origins | None = None,
) -> Partition:
    """Lower what has a native form. With `fallback` false all nodes without one are refused.

    With `guarded`, programs may be specialised for the likely sizes behind guards. All random
    numbers depend on `seed`. `kept` names states of streams that grow: the caller keeps them
    (`KeptStates`), and nothing may be interpreted. With `as_one` the model is not cut where sizes
    follow from values that it computes: kernels tell them in the midst of a run. `together`
    tells, or learns, how many positions convolutions compute together (`ops.rules.winograd_ways`).

    Where a node needs to know an operand, and the elements of some small integer values would tell
    it, all is lowered anew with these elements as run-time sizes, until no node asks for more.
    `known` holds those that nodes asked for before. `origins` notes which weights decide something.
    """
    shape_operands = set(known)
    hints = Hints()
    looked_at = None if origins is None else origins.looked_at
    while True:
        if origins is not None and looked_at is not None:
            # What the attempt before this one has looked at is no part of the result.
            origins.looked_at = looked_at
        operands = frozenset(shape_operands)
        attempt = _Partitioner(
            model, fallback, operands, guarded, seed, kept, hints, as_one, together, origins
        )
        try:
            result = attempt.run()
        except (UnsupportedError, InputError):
            implied = attempt.implied()
            if not implied <= hints:
                hints |= implied
                continue
            if not hints.grown:
                raise
            # Where computed sizes have no native form, those of inputs may have one: do without the
            # hints.
            hints = hints.without_grown()
            continue
        if not attempt.requested and attempt.hints <= hints:
            result.shape_operands = operands
            return result
        shape_operands |= attempt.requested
        hints |= attempt.hints


class _Partitioner:
    def __init__(
        self,
        model: ir.Model,
        fallback: bool,
        shape_operands: Set[ir.Value],
        guarded: Guards,
        seed: int,
        keeping: Keeping | None,
        hints: Hints,
        as_one: bool,
        together: Together | None,
        origins: Origins | None,
    ) -> None:
        self._as_one, self._together, self._origins = as_one, together, origins
        self._keeping, self.hints = keeping, hints
        self._kept: KeptStates | None = None
        self._ragged: Ragged | None = None
        self._model = model
        self._guarded = guarded
        self._seed = seed
        self._shape_operands = shape_operands
        # Shape operands that refused nodes need in addition.
        self.requested: set[ir.Value] = set()
        self._graph = model.graph
        self._fallback = fallback
        self._opsets = {domain or "": v for domain, v in model.opset_imports.items()}
        self._names = Names(model)
        self._done: set[ir.Node] = set()
        caches = grown_caches(model)
        self._result = Partition(
            tuple(argument(v) for v in self._graph.inputs),
            tuple(argument(v) for v in self._graph.outputs),
            tuple(argument(v) for v in overridable(model)),
            (*(pair.names for pair in appended(self._graph)), *caches.found.items()),
            caches.lengths,
        )
        self._handover = Handover(shape_operands)
        self._result.constants = self._handover.constants
        self._refusals: list[tuple[ir.Node, UnsupportedError]] = []
        self._room = Room(origins=origins)
        self._open()

    def _open(self) -> None:
        self._builder = Builder(
            self._handover.data_dependent,
            self._guarded,
            self._seed,
            self._room,
            self._shape_operands if self._as_one else (),
            self._as_one,
            self._together,
        )
        self._lowerer = Lowerer(self._builder, self._opsets)
        self._scope = Scope()
        self._made: list[ir.Value] = []
        self._lists: list[ListStage] = []

    def run(self) -> Partition:
        if self._keeping is not None:
            states = self._builder, self._scope, self._graph, self._keeping, self.hints
            self._kept = KeptStates(*states, grown_caches(self._model).conditions)
            if self._keeping.batch is not None:
                self._ragged = Ragged(self._builder, self._lowerer, self._scope, self._kept)
        for value in self._graph.inputs:
            if self._kept is None or not self._kept.is_given(value):
                self._handover.make_available(value)
        for node in outermost(self._graph):
            try:
                self._lower_here_or_next(node)
            except UnsupportedError as refusal:
                known = self._shape_operands, self._graph, self._scope, self._handover
                self.requested |= ShapeOperands(*known).requested(refusal)
                if self._kept is not None and not self.requested:
                    raise
                if self._kept is not None:
                    return self._result
                self._close(final=False)
                self._run_apart(node, refusal)
            self._done.update(with_inner(node))
        if self._kept is not None and self._result.parts:
            reason = "needs a stage of its own, which states of streams that grow exclude"
            raise UnsupportedError(self._graph.name or "", "graph", reason)
        self._close(final=True)
        self._drop_unread_lists()
        # If more shape operands are requested, another attempt follows, which shows the real
        # refusals.
        if self._refusals and not self._fallback and not self.requested:
            raise joined_refusals(self._refusals)
        return self._result

    def implied(self) -> Hints:
        """Find hints about states in a model that was refused."""
        return Hints() if self._kept is None else self._kept.implied()

    def _lower_here_or_next(self, node: ir.Node) -> None:
        """Lower the node; in a new segment where sizes have to be known before it runs."""
        try:
            self._lower(node)
        except UnboundedError:
            if self._as_one:
                raise
            self._close(final=False)
            self._lower(node)

    def _lower(self, node: ir.Node) -> None:
        inputs = captures(node)
        if any(value in self._shape_operands and self._is_computed_here(value) for value in inputs):
            self._close(final=False)
        mark = self._builder.checkpoint()
        for value in inputs:
            self._handover.declare(self._builder, self._scope, value)
        try:
            with translated(f"node {describe(node)!r} ({node.op_type})"):
                if self._ragged is None:
                    self._lowerer.node(self._scope, node)
                else:
                    self._ragged.node(node)
        except UnsupportedError:
            self._builder.rollback(mark)
            raise
        self._made += [value for value in node.outputs if self._scope.get(value) is not None]

    def _is_computed_here(self, value: ir.Value) -> bool:
        """Whether only running the current segment tells the elements of a value that it makes."""
        lowered = self._scope.get(value)
        if not isinstance(lowered, (Tensor, Joined)):
            return False
        return value in self._made and lowered.known is None

    def _close(self, final: bool) -> None:
        """End the current segment: its outputs are what later parts, or the user, need."""
        single = final and not self._result.parts
        if single:
            for value in self._graph.inputs:
                if value in self._handover.available:
                    self._handover.declare(self._builder, self._scope, value)
            self._declare_outputs()
            # Inputs are declared in the model's order, whatever order nodes asked for them in.
            order = {v.name: i for i, v in enumerate(self._graph.inputs)}
            self._builder.draft.inputs.sort(key=lambda i: order.get(i.name, len(order)))
        else:
            for value in self._made:
                if self._needed_later(value) and not self._handover.keep_known(self._scope, value):
                    self._output(value)
            if final:
                self._handover.keep_constants(self._graph.outputs)
        if self._builder.draft.outputs or single:
            program = self._builder.draft.finish()
            self._result.parts.append(Segment(program))
        self._result.parts += self._lists
        self._open()

    def _drop_unread_lists(self) -> None:
        """Drop list stages whose lists only native parts read, as the tensors in them."""
        parts = self._result.parts
        read = {value.name for value in self._graph.outputs}
        for part in parts:
            if isinstance(part, (FallbackStage, LookupStage, Choice)):
                read |= {value.name for value in part.inputs}
        self._result.parts = [
            part for part in parts if not isinstance(part, ListStage) or part.output.name in read
        ]

    def _declare_outputs(self) -> None:
        if self._ragged is not None:
            self._ragged.close()
        for value in self._graph.outputs:
            if self._ragged is not None:
                self._ragged.require_shared(value)
            if self._kept is None or value not in self._kept:
                self._scope[value] = self._lowerer.value(self._scope, value)
                if self._kept is None or not self._kept.requires(value):
                    self._output(value)
        described = zip(self._result.outputs, self._graph.outputs, strict=True)
        self._result.outputs = tuple(computed_sizes(a, self._scope.get(v)) for a, v in described)
        if self._kept is not None:
            self._describe_kept(self._kept)

    def _describe_kept(self, kept: KeptStates) -> None:
        """Replace states among inputs and outputs by the inputs and outputs of growing states."""
        self.hints = kept.finish()
        sizes, outputs = kept.arguments()
        graph = self._graph
        inputs = (kept.grown_arguments.get(v) or argument(v) for v in graph.inputs if v not in kept)
        self._result.inputs, self._result.outputs = (*inputs, *sizes), outputs
        self._result.kept, self._result.grown = kept.described(), tuple(kept.grown)

    def _output(self, value: ir.Value) -> None:
        """Hand a value on: an output of the program, or for a sequence one for each element."""
        lowered = self._scope.get(value)
        assert lowered is not None
        if isinstance(lowered, Absent):
            self._handover.sequences[value] = lowered
            self._lists.append(ListStage(argument(value), None))
        elif isinstance(lowered, TensorSequence):
            parts = [self._output_element(value, i, e) for i, e in enumerate(lowered.elements)]
            self._handover.sequences[value] = lowered.dtype, tuple(parts)
            self._lists.append(ListStage(argument(value), tuple(argument(part) for part in parts)))
        elif isinstance(lowered, Stack):
            part = self._output_element(value, 0, lowered.rows)
            self._handover.sequences[value] = part
            self._lists.append(ListStage(argument(value), (argument(part),), is_rows=True))
        elif isinstance(lowered, Pieces):
            rows = self._output_element(value, 0, lowered.rows)
            borders = self._output_element(value, 1, lowered.borders)
            self._handover.sequences[value] = PieceValues(rows, borders, lowered.axis)
            made = (argument(rows), argument(borders))
            self._lists.append(ListStage(argument(value), made, axis=lowered.axis))
        else:
            self._output_tensor(value, lowered)

    def _output_element(self, sequence: ir.Value, number: int, element: Value) -> ir.Value:
        """Hand on one tensor of a sequence as a value of its own."""
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
        self._handover.set_available(value, lowered.dtype, plain_shape(lowered))

    def _needed_later(self, value: ir.Value) -> bool:
        return value.is_graph_output() or any(u.node not in self._done for u in value.uses())

    def _run_apart(self, node: ir.Node, refusal: UnsupportedError) -> None:
        """Make a part of its own of a node without a native form."""
        given = set(self._handover.size_sources)
        apart = maps_stage(node) or lookup_stage(node)
        # An attempt that will be repeated needs no choice.
        choice = None if self.requested else self._choice(node, refusal)
        if apart is not None:
            made, read = apart
            self._handover.keep_constants(read)
            self._result.parts.append(made)
        elif choice is None:
            self._refusals.append((node, refusal))
            stage, inputs = fallback_stage(node, refusal, self._opsets)
            self._handover.keep_constants(inputs)
            self._result.parts.append(stage)
        else:
            self._result.parts.append(choice)
        for value in node.outputs:
            self._handover.make_available(value)
        self._handover.data_dependent |= self._handover.size_sources.keys() - given

    def _choice(self, node: ir.Node, refusal: UnsupportedError) -> Choice | None:
        """Cut the branches of an If into parts, so that what is native in them stays native.

        None for other nodes, for branches that are refused, and where the node as a whole is better
        specialised when called, for the structures of its operands.
        """
        if not is_if(node) or isinstance(refusal, UnknownStructureError):
            return None
        condition = node.inputs[0]
        assert condition is not None
        inputs = captures(node)
        self._handover.keep_constants(inputs)
        try:
            first, second = (self._branch(node, branch) for branch in branches(node))
        except (UnsupportedError, ModelError):
            # For instance, a branch that reads a value of no known type.
            return None
        outputs = tuple(argument(value) for value in node.outputs)
        read = tuple(self._handover.argument(value) for value in inputs)
        return Choice(describe(node), condition.name or "", read, outputs, (first, second))

    def _branch(self, node: ir.Node, branch: ir.Graph) -> Partition:
        read = set(mentioned(branch))
        inputs, constants = {}, {}
        for value in captures(node):
            tensor = self._handover.tensor(value)
            if value in read and tensor is not None:
                constants[value] = tensor
            elif value in read:
                inputs[value] = self._handover.argument(value)
        model = branch_model(branch, inputs, constants, self._opsets)
        return partition(
            model,
            self._fallback,
            self._guarded,
            self._seed,
            together=self._together,
            origins=self._origins,
        )
