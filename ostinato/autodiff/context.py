"""The interface of a gradient rule: a node, its cotangents, and a writer."""

from __future__ import annotations

import onnx_ir as ir

from ostinato.autodiff.arithmetic import Arithmetic, Term
from ostinato.autodiff.contributions import Dims, Part, zeros
from ostinato.autodiff.scope import Scope, is_float
from ostinato.graph.axis_maps import Form, Row
from ostinato.graph.facts import facts_of
from ostinato.graph.writer import Array, Operand, Writer
from ostinato.model.node_reader import NodeReader
from ostinato.model.schema import default_of, schema_of
from ostinato.model.values import constant_array, dims_of


class Context(NodeReader):
    """A node whose outputs have gradients; a rule gives its inputs theirs.

    writer: writes nodes of the element type of the node's first float output, else first input.
    ops: writes formulas with it.
    """

    def __init__(self, scope: Scope, node: ir.Node) -> None:
        super().__init__(node)
        self.scope = scope
        values = (*node.outputs, *(value for value in node.inputs if value is not None))
        types = [value.dtype for value in values if is_float(value)]
        name = self.name.strip("/").replace("/", "_")
        self.writer: Writer = scope.writer(types[0] if types else None, f"grad/{name}")
        self.ops = Arithmetic(self.writer)

    # Reading

    def input(self, index: int) -> Term:
        """Input `index`, to compute with; `given` is for its type and shape."""
        return Term(self.ops, self.scope.forward(self.given(index)))

    def output(self, index: int = 0) -> Term:
        """Output `index` of the node, to compute with."""
        return Term(self.ops, self.scope.forward(self.node.outputs[index]))

    @property
    def x(self) -> Term:
        """Input 0, to compute with."""
        return self.input(0)

    @property
    def y(self) -> Term:
        """Output 0, to compute with."""
        return self.output()

    def constant(self, index: int) -> Array | None:
        """The elements of an input that is a constant, else None."""
        return constant_array(self.given(index)) if self.has(index) else None

    def wants(self, index: int) -> bool:
        """Whether the gradient of input `index` is of use."""
        return self.has(index) and self.given(index) in self.scope.wanted

    def has_gradient(self, index: int) -> bool:
        """Whether the loss depends on output `index`."""
        outputs = self.node.outputs
        return index < len(outputs) and self.scope.has_gradient(outputs[index])

    def gradient(self, index: int = 0) -> Term:
        """The gradient of output `index`, which is zeros where the loss does not depend on it."""
        found = self.scope.gradient(self.node.outputs[index])
        if found is None:
            found = zeros(self.writer, self.sizes(self.node.outputs[index]))
        return Term(self.ops, found)

    def float(self, name: str) -> float:
        """A float attribute, by default what the operator's schema says."""
        schema = schema_of(self.op_type, "", self.scope.opset)
        assert schema is not None
        given: float = self.attributes.float(name, default_of(schema, name))
        return given

    def axis(self, default: int | None = None, name: str = "axis") -> int:
        """An axis attribute, counted from the front of input 0."""
        rank = self.rank(self.given(0))
        reader = self.attributes
        given: int = reader.int(name) if default is None else reader.int(name, default)
        return given % rank if rank else 0

    def row(self) -> Row | None:
        """Give the axis map of input 0, see `axis_maps`; reads the attributes that decide it.

        None where only a run tells.
        """
        rule, values = facts_of(self.op_type).axes, self.node.inputs
        assert rule is not None
        dims = [None if value is None else dims_of(value) for value in values]
        dims[0] = self.dims(self.given(0))
        form = Form(self.node, dims, self.constant, self.scope.opset)
        axes = rule(form)
        self.attributes.mark_read(form.read)
        return None if axes is None else axes[0]

    def mixed(self) -> tuple[int, ...]:
        """The axes of input 0 along which the node combines elements."""
        row = self.row()
        if row is None:
            raise self.refuse("the axes are only known at run time")
        return tuple(axis for axis, place in enumerate(row) if not isinstance(place, int))

    def sizes(self, value: ir.Value) -> Operand:
        """The sizes of a value of the node: 1-D int64, an array when all are known."""
        return self.scope.sizes(value, self.writer)

    def size(self, value: ir.Value, axis: int) -> Operand:
        """The size of a value of the node along `axis`: 1-D int64, one element, like `sizes`."""
        return self.scope.size(value, axis, self.writer)

    # Giving

    def give(self, index: int, gradient: Term) -> None:
        """Add to the gradient of input `index`, whose shape `gradient` has, if it wants one."""
        if self.wants(index):
            self.scope.add(self.given(index), gradient.value)

    def give_broadcast(self, index: int, gradient: Term) -> None:
        """Add to the gradient of input `index`, which was broadcast to the shape of output 0."""
        if self.wants(index):
            large, given = self.dims(self.node.outputs[0]), self.given(index)
            self.dims(given)
            self.scope.add_broadcast(given, gradient.value, large, self.writer)

    def unbroadcast(self, index: int, gradient: Term, large: Dims) -> Term:
        """The sum over the axes along which input `index` is repeated in sizes `large`."""
        found = self.scope.unbroadcast(gradient.value, large, self.given(index), self.writer)
        return Term(self.ops, found)

    def give_product(self, index: int, a: Term, b: Term) -> None:
        """Add `aᵀ b` to the gradient of input `index`, a matrix: see `Scope.add_product`."""
        if self.wants(index):
            self.scope.add_product(self.given(index), a.value, b.value, self.writer)

    def give_rows(self, index: int, places: Operand, rows: Term, axis: int) -> None:
        """Add rows to the gradient of input `index` at these places: see `Scope.add_rows`."""
        if self.wants(index):
            given = self.given(index)
            self.dims(given)
            self.scope.add_rows(given, places, rows.value, axis, self.writer)

    def give_part(self, index: int, gradient: Term, axis: int, start: int, size: int) -> None:
        """Add to the gradient of some elements of input `index`: see `Part`."""
        if self.wants(index):
            self.scope.add(self.given(index), Part(gradient.value, axis, start, size))
