"""Elements between those that neighbouring lanes would store are stored together with them.

    y[2 i + j] = sum_k x[k, i] W[k, j]    =>    y[2 i] = sum_k x[k, i] W[k, 0]
                                                y[2 i + 1] = sum_k x[k, i] W[k, 1]

The short axis becomes several sums and stores of each point, so that lanes along `i`, or rows of a
tile, fill memory without gaps; the sums share what they load. Transposed convolutions and upsampled
images end like this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ostinato.machine.record import Machine
from ostinato.program.expr import Axis
from ostinato.program.kernel import Kernel, Reduce, Store
from ostinato.program.nodes import Buffer, Program, map_kernels
from ostinato.schedule.index_maps import Affine, shifter, substitute_kernel
from ostinato.schedule.operands import row_axes_of_windows, shared_axes
from ostinato.schedule.tile import estimated_cycles, lane_of
from ostinato.schedule.transposes import transposition

# This many vectors can be interleaved by shuffles (`codegen.strided.interleaved`).
LENGTHS = (2, 3, 4, 8)
# An interleaved kernel may take this share of the estimated cycles, which leave out most of the
# cost of scattered stores: transposed convolutions of estimates up to 1.04 took 0.76 to 1.0 of the
# time with AVX2 and AVX-512, and convolutions before a shuffle of pixels with 1.16 took 1.25
# (`benchmarks.versions`).
_MOST_CYCLES = 1.05
# Sums of a point, of which each takes registers of its own. Transposed convolutions with strides of
# 2, 4 and 8 take 0.7 to 1.0 of the time with AVX2 and AVX-512, those of 8 sums 0.88 and 0.97 (16 to
# 128 channels, with and without the pass, by turns).
_MOST_SUMS = 8


def interleave(program: Program, machine: Machine) -> Program:
    """Let kernels that write neighbours along a short axis write these at each point."""

    def change(kernel: Kernel) -> Kernel:
        axis = _short_axis(kernel)
        # Copies are laid out as their readers need them.
        if axis is None or any(program.buffers[name].is_copy for name in kernel.writes()):
            return kernel
        result = _interleaved(kernel, axis)
        return result if _pays(kernel, result, machine, program.buffers) else kernel

    return program.with_body(map_kernels(program.body, change))


def _pays(kernel: Kernel, result: Kernel, machine: Machine, buffers: Mapping[str, Buffer]) -> bool:
    """Whether a kernel takes less time interleaved."""
    if transposition(kernel, machine) is not None:
        # As many shuffles fill memory already.
        return False
    before, after = (estimated_cycles(k, machine, buffers) for k in (kernel, result))
    if not kernel.reductions:
        return after < before
    # Rows along the short axis may share more than sums do. Where no rows share what the sums load,
    # these sums are all that runs in parallel.
    lane = lane_of(result, machine, buffers)
    is_tile = lane is not None and bool(
        shared_axes(result, lane) or row_axes_of_windows(result, lane)
    )
    return is_tile and after <= _MOST_CYCLES * before


def _interleaved(kernel: Kernel, axis: Axis) -> Kernel:
    assert isinstance(axis.extent, int)
    reductions: list[Reduce] = []
    stores: list[Store] = []
    for place in range(axis.extent):
        one = substitute_kernel(kernel, {axis: Affine(place, ())})
        renumbered = shifter(len(reductions))
        reductions += [reduce.map(renumbered) for reduce in one.reductions]
        stores += [store.map(renumbered) for store in one.stores]
    axes = tuple(a for a in kernel.axes if a != axis)
    return replace(kernel, axes=axes, reductions=tuple(reductions), stores=tuple(stores))


def _short_axis(kernel: Kernel) -> Axis | None:
    """The axis along which a kernel writes neighbours, while it reads them along another one."""
    if len(kernel.stores) != 1 or kernel.guard is not None or kernel.ordered:
        return None
    (store,) = kernel.stores
    if store.partial or not kernel.reads().isdisjoint(kernel.writes()):
        return None
    strides = dict(store.access.terms)
    short = [axis for axis in kernel.axes if strides.get(axis) == 1]
    if len(short) != 1 or short[0].extent not in LENGTHS:
        return None
    count = short[0].extent
    if count == 3 and kernel.reductions:
        # Three sums of a point share no more than rows of a tile do.
        return None
    is_plain = all(reduce.chains == 1 and reduce.factor is not None for reduce in kernel.reductions)
    if not is_plain or len(kernel.reductions) * count > _MOST_SUMS:
        return None
    loads = tuple(kernel.loads())
    if any(load.index for load in loads):
        return None
    for axis, stride in strides.items():
        along = {load.access.stride(axis) for load in loads}
        is_apart = isinstance(stride, int) and stride >= count
        if is_apart and along in ({1}, {0, 1}):
            return short[0]
    return None
