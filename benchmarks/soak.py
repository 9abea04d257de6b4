"""Millions of steps over a pool whose streams open, stall and close at random."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import numpy as np

import ostinato
from benchmarks import harness, models

CAPACITY, HIDDEN, FRAMES = 200, 16, 64
# Of the streams that are open, so many are followed by a single stream each.
FOLLOWED = 4
REPORTS = 20


@dataclass
class Follower:
    """A stream alone that gets the frames of one in the pool."""

    alone: ostinato.Stream
    frames: list[int] = field(default_factory=list)


def resident_bytes() -> int:
    """Memory of this process that is in use, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("--soak needs /proc/self/status")


def run(steps: int) -> None:
    """Step until so many frames were taken. Ends the program where a bit differs."""
    proto = models.recurrent_op("soak", "GRU", HIDDEN, 1).proto
    for value in [*proto.graph.input, *proto.graph.output]:
        dims = value.type.tensor_type.shape.dim
        dims[len(dims) - 2].dim_param = "N"
    session = ostinato.InferenceSession(proto)
    rng = np.random.default_rng(0)
    frames = [{"x": rng.standard_normal((1, 1, HIDDEN)).astype(np.float32)} for _ in range(FRAMES)]
    pool = session.pool({"h0": "hn"}, CAPACITY)
    followers: dict[int, Follower] = {}
    start, done, compared, opened = perf_counter(), 0, 0, 0
    warm = 0
    table = harness.table(
        f"{steps:,} steps over up to {CAPACITY} streams",
        "steps",
        ["s", "streams opened", "compared", "resident MiB"],
    )
    next_report = steps // REPORTS
    while done < steps:
        opened += _come_and_go(rng, pool, session, followers)
        picks = rng.integers(0, FRAMES, CAPACITY).tolist()
        share = rng.choice([0.1, 0.9, 1.0])
        chosen = (rng.random(CAPACITY) < share).tolist()
        for handle, pick, is_chosen in zip(pool.handles, picks, chosen, strict=False):
            if is_chosen:
                pool.push(handle, frames[pick])
                if handle in followers:
                    followers[handle].frames.append(pick)
        results = pool.step()
        done += len(results)
        compared += _compare(followers, results, frames)
        if done >= next_report:
            next_report += max(1, steps // REPORTS)
            memory = resident_bytes()
            warm = warm or memory
            table.add_row(
                f"{done:,}",
                f"{perf_counter() - start:.1f}",
                f"{opened:,}",
                f"{compared:,}",
                f"{memory / 2**20:.1f}",
            )
    harness.console.print(table)
    growth = resident_bytes() - warm
    harness.console.print(f"grown by {growth / 2**20:.1f} MiB since the first twentieth")
    if growth > 8 << 20:
        raise SystemExit("memory grows")


def _come_and_go(
    rng: np.random.Generator,
    pool: ostinato.Pool,
    session: ostinato.InferenceSession,
    followers: dict[int, Follower],
) -> int:
    """Close some streams and open others; how many were opened."""
    if rng.random() < 0.2:
        handles = pool.handles
        for handle in rng.permutation(handles)[: len(handles) // 20].tolist():
            pool.close(handle)
            followers.pop(handle, None)
    opened = 0
    while len(pool) < CAPACITY and rng.random() < 0.9:
        handle = pool.open()
        opened += 1
        if len(followers) < FOLLOWED:
            followers[handle] = Follower(session.stream({"h0": "hn"}))
    return opened


def _compare(
    followers: dict[int, Follower],
    results: dict[int, list[np.ndarray]],
    frames: list[dict[str, np.ndarray]],
) -> int:
    compared = 0
    for handle, follower in followers.items():
        for pick in follower.frames:
            (expected,), (got,) = follower.alone.step(frames[pick]), results[handle]
            if not np.array_equal(got, expected):
                raise SystemExit(f"stream {handle} differs from the same stream alone")
            compared += 1
        follower.frames.clear()
    return compared
