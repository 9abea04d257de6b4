"""The records of kinds of machines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ostinato.machine.record import AVX2, AVX512, NEON


@pytest.mark.parametrize("machine", [AVX512, AVX2, NEON], ids=lambda m: f"{m.vector_bytes}-bytes")
def test_caches_hold_more_the_farther_they_are(machine):
    sizes = [machine.block_bytes, machine.resident_bytes, machine.near_bytes]
    sizes += [machine.first_level_bytes, machine.panel_bytes]
    sizes += [machine.paired_bytes, machine.far_bytes]
    assert sizes == sorted(sizes) and sizes[-1] < machine.second_level_bytes
    for cycles in (machine.packed_cycles, machine.strided_cycles):
        assert list(cycles) == sorted(cycles)


def test_thresholds_follow_the_caches():
    twice = replace(AVX512, first_level_bytes=2 * AVX512.first_level_bytes)
    assert twice.near_bytes == 2 * AVX512.near_bytes
    assert twice.panel_bytes == AVX512.panel_bytes


def test_registers_are_left_for_operands():
    assert [m.accumulators for m in (AVX512, AVX2, NEON)] == [24, 12, 24]
    assert AVX512.transposed_rows == 8
