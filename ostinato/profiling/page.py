"""A profile as one HTML page that needs nothing else."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ostinato.profiling.measuring import KernelTime, Profile

# Parts of a page that grow with the model are cut here, so that it stays below a megabyte.
_MOST_KERNELS = 600
_MOST_NODES = 40
_MOST_REFUSALS = 800
_MOST_PIECES = 1500


def record(profile: Profile) -> dict[str, Any]:
    """The profile as JSON can hold it, without the events of a call."""
    return {
        "model": profile.model,
        "inputs": profile.inputs,
        "calls": profile.calls,
        "call_seconds": profile.call,
        "kernel_seconds": profile.measured,
        "waiting_seconds": list(profile.waiting),
        "outside_seconds": profile.outside,
        "overhead": profile.overhead,
        "shared": profile.shared,
        "arena_bytes": profile.arena,
        "peak_flops": profile.roofline.peak,
        "working_sets": list(profile.roofline.working_sets),
        "bandwidth": list(profile.roofline.read),
        "fallback": list(profile.fallback),
        "kernels": [
            asdict(kernel)
            | {
                "seconds": kernel.seconds,
                "of_roofline": kernel.of_roofline,
                "imbalance": kernel.imbalance,
            }
            for kernel in profile.kernels
        ],
        "memory": [list(point) for point in profile.memory],
        "refusals": list(profile.refusals),
    }


def page(profile: Profile) -> str:
    """The page, below a megabyte whatever the model is."""
    ranked = sorted(range(len(profile.kernels)), key=lambda i: -profile.kernels[i].seconds)
    shown = sorted(ranked[:_MOST_KERNELS])
    numbers = {number: place for place, number in enumerate(shown)}
    kernels = [profile.kernels[number] for number in shown]
    data = record(profile) | {
        "kernels": [_kernel(kernel) for kernel in kernels],
        "hidden": len(profile.kernels) - len(kernels),
        "edges": _edges(kernels),
        "pieces": _pieces(profile, numbers),
        "memory": _thinned([[b * 1e6, size] for b, size in profile.memory], _MOST_PIECES),
        "refusals": [_refusal(r) for r in profile.refusals[:_MOST_REFUSALS]],
    }
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    # Names of a model are text: nothing in them may end the script.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return template.replace("/*DATA*/null", text)


def _kernel(kernel: KernelTime) -> dict[str, Any]:
    nodes = list(kernel.nodes[:_MOST_NODES])
    if len(kernel.nodes) > _MOST_NODES:
        nodes.append(f"and {len(kernel.nodes) - _MOST_NODES} more")
    return {
        "name": kernel.name,
        "title": kernel.title,
        "nodes": nodes,
        "loop": kernel.loop,
        "runs": kernel.runs,
        "us": kernel.seconds * 1e6,
        "threads": [seconds * 1e6 for seconds in kernel.threads],
        "imbalance": kernel.imbalance,
        "bytes": kernel.bytes,
        "flops": kernel.flops,
        "roof": kernel.of_roofline,
    }


def _refusal(refusal: dict[str, Any]) -> list[Any]:
    return [refusal[key] for key in ("producer", "consumer", "buffer", "bytes", "reason")]


def _edges(kernels: list[KernelTime]) -> list[list[int]]:
    """Pairs of a kernel and the last writer of what it reads; in a loop, of the step before."""
    found: dict[tuple[int, int], None] = {}
    writer: dict[str, int] = {}
    for place, kernel in enumerate(kernels):
        for name in kernel.reads:
            if name in writer and writer[name] != place:
                found[writer[name], place] = None
        writer.update(dict.fromkeys(kernel.writes, place))
    return [list(edge) for edge in found]


def _pieces(profile: Profile, numbers: dict[int, int]) -> list[list[float]]:
    """The bars of the call: kernel, begin and length in microseconds, thread; steps are joined."""
    pieces: list[list[float]] = []
    for thread in range(len(profile.waiting)):
        events = [event for event in profile.events if event[3] == thread]
        # Where all steps are alike, the first ones are shown, then sums by kernel.
        group = math.ceil(len(events) * len(profile.waiting) / _MOST_PIECES) or 1
        for start in range(0, len(events), group):
            some = events[start : start + group]
            longest = max(some, key=lambda event: event[2] - event[1])[0]
            if longest in numbers:
                begin, end = some[0][1] * 1e6, some[-1][2] * 1e6
                piece = [numbers[longest], round(begin, 3), round(end - begin, 3)]
                pieces.append([*piece, thread] if thread else piece)
    return pieces


def _thinned(points: list[list[float]], most: int) -> list[list[float]]:
    step = math.ceil(len(points) / most) or 1
    return points[::step]
