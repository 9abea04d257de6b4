import llvmlite.binding as llvm
import pytest

from ostinato.profiling import roofline
from ostinato.profiling.roofline import Roofline, measure

LIMITS = Roofline(
    cpu="made up",
    peak=100.0,
    working_sets=(10, 20, 40),
    plain=(8.0, 4.0, 2.0),
    prefetched=(7.0, 3.0, 2.0),
    read=(8.0, 4.0, 2.0),
)


@pytest.mark.parametrize(("size", "rate"), [(0, 8), (10, 8), (11, 4), (40, 2), (1000, 2)])
def test_bandwidth_is_that_of_the_set_it_fits_in(size: float, rate: float) -> None:
    assert LIMITS.bandwidth(size) == rate


def test_weights_are_bound_by_the_slower_of_the_two() -> None:
    assert LIMITS.weights(flops=1000, size=8) == 10
    assert LIMITS.weights(flops=1, size=8) == 1
    assert LIMITS.weights(flops=1, size=8, working_set=20) == 2


def test_one_step_reads_both_weights_once() -> None:
    assert LIMITS.recurrence(1, 0, recurrent=8, projection=12) == 20 / 4


def test_a_recurrence_is_its_projection_and_its_steps_in_turn() -> None:
    assert LIMITS.recurrence(5, 200, recurrent=20, projection=20) == 1 + 5 * 20 / 4
    assert LIMITS.recurrence(5, 200, recurrent=20, projection=20, layers=2) == 1 + 5 * 20 / 8
    assert LIMITS.recurrence(5, 20000, recurrent=20, projection=20) == 200


def test_measured_figures_are_plausible() -> None:
    limits = measure(attempts=1)
    # Any core of the last decade does more than 1 GFLOP/s and reads more than 0.1 GB/s.
    assert limits.peak > 1e9
    assert min(limits.plain + limits.prefetched) > 1e8
    assert list(limits.read) == sorted(limits.read, reverse=True)


def test_loops_stay_in_registers() -> None:
    machine = roofline._target_machine()
    module = llvm.parse_assembly(roofline._text(roofline.widest_lanes()))
    assembly = machine.emit_assembly(module)
    moves = [line for line in assembly.splitlines() if "sp" in line and "mm" in line]
    assert not moves, moves
