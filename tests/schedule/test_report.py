from __future__ import annotations

import json
from dataclasses import replace

from ostinato.program.expr import Axis, cast, constant, op
from ostinato.program.kernel import Kernel
from ostinato.schedule.pipeline import schedule
from ostinato.schedule.report import report_kernels, report_unfused_pairs
from tests.program.programs import at, pointwise, program, store
from tests.schedule.test_pipeline import REGISTERS, cell


def records(source, disable=()):
    scheduled = schedule(source, REGISTERS[0], disable)
    return report_kernels(source, scheduled.program)


def test_kernels_of_a_recurrence():
    found = {tuple(record["fused"]): record for record in records(cell())}
    assert list(found) == [("begin",), ("input",), ("state", "gates"), ("out",), ("end",)]
    assert [r["hoisted"] for r in found.values()] == [False, True, False, True, False]
    assert [r["in_loop"] for r in found.values()] == [None, None, "T", None, None]
    assert [r["reductions"] for r in found.values()] == [0, 1, 2, 1, 0]
    step = found["state", "gates"]
    assert step["points"] == "8"
    assert step["tile"] == "1 x 1 x 8"
    # Two operands of 5 rows and 8 lanes.
    assert step["weight_bytes"] == 2 * 5 * 8 * 4


def test_nothing_is_hoisted_where_that_is_disabled():
    found = records(cell(), ("hoist", "sink"))
    assert not any(record["hoisted"] for record in found)
    assert sum(record["in_loop"] == "T" for record in found) > 1


def test_bytes_and_operations_of_one_execution():
    (record,) = records(pointwise(lambda x: op("add", op("mul", x, x), x), 32))
    assert record["bytes"] == 2 * 32 * 4
    assert record["flops"] == 2 * 32
    assert record["weight_bytes"] == 0


def test_memory_that_is_read_twice_counts_once():
    i = Axis("i", 8)
    value = op("add", at("x", (i, 1)), at("x", (i, -1), offset=7))
    kernel = Kernel("k", (i,), (), (store("y", value, (i, 1)),))
    (record,) = records(program({"x": (8,)}, {"y": (8,)}, (kernel,)))
    assert record["bytes"] == 2 * 8 * 4


def test_operations_on_integers_are_no_flops():
    i = Axis("i", 8)
    bits = op("and", cast(at("x", (i, 1)), "int32"), constant(15, "int32"))
    value = op("mul", cast(bits, "float32"), constant(0.5, "float32"))
    kernel = Kernel("k", (i,), (), (store("y", value, (i, 1)),))
    source = program({"x": (8,)}, {"y": (8,)}, (kernel,))
    (record,) = records(source)
    assert record["flops"] == 8


def test_weights_that_were_packed_are_named():
    source = cell()
    buffers = {
        name: replace(buffer, sources=(f"the {name}",)) if name in source.constants else buffer
        for name, buffer in source.buffers.items()
    }
    found = records(replace(source, buffers=buffers))
    packed = {record["fused"][0]: record["packed"] for record in found}
    (step,) = packed["state"]
    assert (step["weights"], step["streams"]) == (["the R"], 2)
    assert step["bytes"] == 2 * 5 * 8 * 4
    assert packed["begin"] == []
    assert not any(record["packed"] for record in records(source, ("pack",)))
    assert not any(record["serpentine"] for record in found)


def test_values_between_kernels():
    scheduled = schedule(cell(), REGISTERS[0])
    found = report_unfused_pairs(scheduled.unfused_pairs)
    assert json.loads(json.dumps(found)) == found
    (rows,) = [one for one in found if one["producer_nodes"] == ["input"]]
    assert rows["consumer_nodes"] == ["state", "gates"]
    assert rows["bytes"] == "40*T"


def test_records_can_be_written_as_json():
    found = records(cell())
    assert json.loads(json.dumps(found)) == found
