from __future__ import annotations

import numpy as np
import pytest

from ostinato.errors import UnsupportedError
from ostinato.model.load import load_model
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Loop, Program, statements
from ostinato.stages.partition import Segment, partition
from ostinato.stages.stage import Keeping
from tests.runtime.test_growing import text_model

LAYER = """
    k{i} = MatMul(x{i}, W)  present{i} = Concat<axis = 1>(past{i}, k{i})
    t{i} = Transpose<perm = [0, 2, 1]>(present{i})  s{i} = MatMul(x{i}, t{i})
    w{i} = Softmax<axis = -1>(s{i})  v{i} = MatMul(w{i}, present{i})  x{next} = MatMul(v{i}, W)
"""


def pooled(source: str) -> Program:
    """The program of a pool, before it is scheduled."""
    weights = {"W": np.eye(8, dtype=np.float32), "rows": np.array([-1, 8])}
    used = {name: array for name, array in weights.items() if f", {name})" in source}
    model = load_model(text_model(source, **used))
    states = {v.name: v.name.replace("past", "present") for v in model.graph.inputs[1:]}
    (part,) = partition(model, fallback=False, kept=Keeping(states, "N")).parts
    assert isinstance(part, Segment)
    return part.program


def reads_weights(program: Program, kernel: Kernel) -> bool:
    return any(program.buffers[name].kind == "constant" for name in kernel.reads())


def test_products_with_weights_are_made_for_all_streams_and_attention_for_each() -> None:
    layers = "".join(LAYER.format(i=i, next=i + 1) for i in range(2))
    program = pooled(
        f"""g (float[N, T, 8] x0, float[N, P, 8] past0, float[N, P, 8] past1)
        => (float[N, T, 8] x2, float[N, Q, 8] present0, float[N, Q, 8] present1) {{ {layers} }}"""
    )
    loops = [s for s in program.body if isinstance(s, Loop)]
    assert len(loops) == 2
    assert all(str(loop.axis.extent) == "N" for loop in loops)
    outside = [s for s in program.body if isinstance(s, Kernel)]
    assert sum(reads_weights(program, kernel) for kernel in outside) == 4
    inside = [s for loop in loops for s in statements(loop.body) if isinstance(s, Kernel)]
    assert sum(len(kernel.reductions) > 0 for kernel in inside) >= 8
    assert not any(reads_weights(program, kernel) for kernel in inside)


def test_a_result_as_long_as_the_states_of_its_stream_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"'s'.*differs from stream to stream"):
        pooled(
            """g (float[N, T, 8] x, float[N, P, 8] past)
            => (float[N, T, Q] s, float[N, Q, 8] present) {
              present = Concat<axis = 1>(past, x)  t = Transpose<perm = [0, 2, 1]>(present)
              y = MatMul(x, W)  s = MatMul(y, t) }"""
        )


def test_rows_of_all_streams_may_be_one_axis_outside_of_the_loops() -> None:
    program = pooled(
        """g (float[N, T, 8] x, float[N, P, 8] past) => (float[N, T, 8] y, float[N, Q, 8] present) {
            flat = Reshape(x, rows)  z = MatMul(flat, W)
            size = Shape(x)  back = Reshape(z, size)  present = Concat<axis = 1>(past, back)
            t = Transpose<perm = [0, 2, 1]>(present)  s = MatMul(x, t)  v = MatMul(s, present)
            out = Reshape(v, rows)  m = MatMul(out, W)  y = Reshape(m, size)
        }"""
    )
    outside = [s for s in program.body if isinstance(s, Kernel)]
    assert sum(reads_weights(program, kernel) for kernel in outside) == 2
    assert sum(isinstance(s, Loop) for s in program.body) == 1
