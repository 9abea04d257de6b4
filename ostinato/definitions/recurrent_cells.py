"""One time step of RNN, GRU and LSTM, written with plain operators.

Formulas: https://onnx.ai/onnx/operators/onnx__LSTM.html and the pages of GRU and RNN. A cell is a
function that lays out the weights of one direction and returns its `Step`, which writes the body
of the recurrence. Pre-activations are summed in the order `(x W + b) + h R`, with `W: [I, G*H]`,
`R: [H, G*H]` and `b: [G*H]`, where `G` counts the gates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import onnx_ir as ir

from ostinato.definitions.recurrent_activations import Activation
from ostinato.graph.writer import Operand, Writer
from ostinato.records import dataclass

# (writer of the body, x_t [B, I], states [B, H]) -> new states [B, H]
Step: TypeAlias = Callable[[Writer, ir.Value, tuple[ir.Value, ...]], tuple[ir.Value, ...]]


@dataclass(frozen=True)
class Parameters:
    """The parameters of one direction, laid out gate by gate by `writer`.

    gates: one letter for each gate, in the order of the rows.
    w, r: `[G*H, I]` and `[G*H, H]`. wb, rb: `[G*H]`, both or neither. p: `[3*H]` for the first
    three gates. clip: bound of what goes into an activation, None for no bound.
    """

    writer: Writer
    gates: str
    hidden_size: int
    w: Operand
    r: Operand
    wb: Operand | None
    rb: Operand | None
    p: Operand | None
    activations: tuple[Activation, ...]
    clip: float | None

    def _rows(self, x: Operand, gates: str, role: str) -> Operand:
        if gates == self.gates:
            return x
        h = self.hidden_size
        rows = [self.gates.index(gate) * h + i for gate in gates for i in range(h)]
        return self.writer.take(x, rows, 0, role)

    def matrix(self, x: Operand, gates: str, role: str) -> ir.Value:
        """The transposed rows of `gates` of the weights `x`: `[K, len(gates)*H]`."""
        return self.writer.value(
            self.writer.transpose(self._rows(x, gates, f"{role}_rows"), role), role
        )

    def bias(self, gates: str, input_only: str = "") -> ir.Value | None:
        """Both biases of `gates` added, then the input's bias alone of the gates `input_only`."""
        if self.wb is None or self.rb is None:
            return None
        parts = [
            self.writer.add(
                self._rows(self.wb, gates, "Wb"), self._rows(self.rb, gates, "Rb"), "b_sum"
            )
        ]
        if input_only:
            parts.append(self._rows(self.wb, input_only, "Wb"))
        return self.writer.value(self.writer.concat(parts, 0, "b"), "b")

    def recurrent_bias(self, gates: str) -> ir.Value | None:
        """The recurrent bias alone of `gates`: `[len(gates)*H]`."""
        if self.rb is None:
            return None
        return self.writer.value(self._rows(self.rb, gates, "Rb"), "Rb")

    def peephole(self, gate: str) -> ir.Value | None:
        """The peephole weights of `gate`: `[H]`."""
        if self.p is None:
            return None
        h = self.hidden_size
        start = self.gates.index(gate) * h
        role = f"P_{gate}"
        return self.writer.value(self.writer.take(self.p, range(start, start + h), 0, role), role)

    def activate(self, body: Writer, which: int, x: ir.Value, role: str) -> ir.Value:
        """Write activation number `which` of this direction on the clipped `x`."""
        if self.clip is not None:
            x = body.clip(x, self.clip, f"{role}_clipped")
        return self.activations[which].write(body, x, role)

    def project(self, body: Writer, x: ir.Value, w: ir.Value, b: ir.Value | None) -> ir.Value:
        """Write `x W + b`, the part that does not depend on the state."""
        product = self.product(body, x, w, "xw")
        return product if b is None else body.op("Add", [product, b], "xw_biased")

    def product(self, body: Writer, x: ir.Value, weights: ir.Value, role: str) -> ir.Value:
        """Write a product with weights that `matrix` has laid out."""
        return body.op("MatMul", [x, weights], role)


def rnn(parameters: Parameters) -> Step:
    """`H' = f(x W + b + H R)`."""
    w = parameters.matrix(parameters.w, "i", "W_t")
    r = parameters.matrix(parameters.r, "i", "R_t")
    b = parameters.bias("i")

    def step(body: Writer, x: ir.Value, states: tuple[ir.Value, ...]) -> tuple[ir.Value, ...]:
        (h,) = states
        total = body.op(
            "Add", [parameters.project(body, x, w, b), parameters.product(body, h, r, "hr")], "gate"
        )
        return (parameters.activate(body, 0, total, "h_new"),)

    return step


def gru(parameters: Parameters, linear_before_reset: bool) -> Step:
    """`H' = (1 - z) n + z H`.

    The recurrent part of the candidate `n` is `r (H R_h + Rb_h)` when `linear_before_reset`, one
    product for all gates, and else `(r H) R_h + Rb_h`, a second product that waits for `r`.
    """
    w = parameters.matrix(parameters.w, "zrh", "W_t")
    one = parameters.writer.scalar(1.0)
    rb = None
    roles = ["h_z", "h_r"]
    if linear_before_reset:
        recurrent, roles = parameters.matrix(parameters.r, "zrh", "R_t"), [*roles, "h_n"]
        b, rb = parameters.bias("zr", input_only="h"), parameters.recurrent_bias("h")
    else:
        recurrent = parameters.matrix(parameters.r, "zr", "R_zr_t")
        candidate = parameters.matrix(parameters.r, "h", "R_h_t")
        b = parameters.bias("zrh")

    def step(body: Writer, x: ir.Value, states: tuple[ir.Value, ...]) -> tuple[ir.Value, ...]:
        (h,) = states
        x_z, x_r, x_n = body.split(parameters.project(body, x, w, b), ("x_z", "x_r", "x_n"))
        h_z, h_r, *h_n = body.split(parameters.product(body, h, recurrent, "hr"), roles)
        z = parameters.activate(body, 0, body.op("Add", [x_z, h_z], "z_gate"), "z")
        r = parameters.activate(body, 0, body.op("Add", [x_r, h_r], "r_gate"), "r")
        if linear_before_reset:
            product = h_n[0] if rb is None else body.op("Add", [h_n[0], rb], "h_n_biased")
            reset = body.op("Mul", [r, product], "h_n_reset")
        else:
            reset = parameters.product(body, body.op("Mul", [r, h], "h_reset"), candidate, "h_n")
        n = parameters.activate(body, 1, body.op("Add", [x_n, reset], "n_gate"), "n")
        new = body.op("Mul", [body.op("Sub", [one, z], "z_complement"), n], "h_candidate")
        return (body.op("Add", [new, body.op("Mul", [z, h], "h_kept")], "h_new"),)

    return step


def lstm(parameters: Parameters, input_forget: bool) -> Step:
    """`C' = f C + i c` and `H' = o h(C')`; coupled gates (`f = 1 - i`) need no rows for `f`."""
    gates = "ioc" if input_forget else "iofc"
    w = parameters.matrix(parameters.w, gates, "W_t")
    r = parameters.matrix(parameters.r, gates, "R_t")
    b = parameters.bias(gates)
    peepholes = {gate: parameters.peephole(gate) for gate in gates if gate != "c"}
    one = parameters.writer.scalar(1.0)

    def gate(body: Writer, name: str, total: ir.Value, cell: ir.Value) -> ir.Value:
        weights = peepholes[name]
        if weights is not None:
            seen = body.op("Mul", [weights, cell], f"{name}_peephole")
            total = body.op("Add", [total, seen], f"{name}_gate")
        return parameters.activate(body, 0, total, name)

    def step(body: Writer, x: ir.Value, states: tuple[ir.Value, ...]) -> tuple[ir.Value, ...]:
        h, c = states
        total = body.op(
            "Add",
            [parameters.project(body, x, w, b), parameters.product(body, h, r, "hr")],
            "gates",
        )
        parts = dict(zip(gates, body.split(total, [f"{g}_sum" for g in gates]), strict=True))
        i = gate(body, "i", parts["i"], c)
        f = body.op("Sub", [one, i], "f") if input_forget else gate(body, "f", parts["f"], c)
        candidate = parameters.activate(body, 1, parts["c"], "c_candidate")
        kept = body.op("Mul", [f, c], "c_kept")
        c_new = body.op("Add", [kept, body.op("Mul", [i, candidate], "c_input")], "c_new")
        o = gate(body, "o", parts["o"], c_new)
        seen = parameters.activate(body, 2, c_new, "c_seen")
        return body.op("Mul", [o, seen], "h_new"), c_new

    return step
