"""The limits of one core of this machine: f32 FMA peak and read rate per working set.

    taskset -c 1 python -m benchmarks.roofline [--json FILE] [--machine]

`ostinato.profiling.roofline` measures them.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from ostinato.profiling.roofline import KIB, Roofline, load, measure, widest_lanes

__all__ = ["KIB", "Roofline", "load", "measure"]


def main() -> None:
    """Measure and print."""
    import argparse

    parser = argparse.ArgumentParser(description="FMA peak and read bandwidth of one core")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--attempts", type=int, help="of which the fastest counts")
    parser.add_argument(
        "--machine", action="store_true", help="measure the fields of the compiler's machine record"
    )
    arguments = parser.parse_args()
    attempts = {} if arguments.attempts is None else {"attempts": arguments.attempts}
    if arguments.machine:
        from benchmarks import machine_record

        machine_record.show(machine_record.measure(**attempts))
        return
    result = measure(**attempts)
    print(f"{result.cpu}: FMA peak {result.peak / 1e9:.1f} GFLOP/s (f32, {widest_lanes()} lanes)")
    print(f"{'working set':>12} {'plain':>9} {'prefetch':>9} {'bound':>9}  GB/s")
    for size, *rates in zip(
        result.working_sets, result.plain, result.prefetched, result.read, strict=True
    ):
        cells = " ".join(f"{rate / 1e9:9.1f}" for rate in rates)
        print(f"{size // KIB:8d} KiB {cells}")
    if arguments.json:
        arguments.json.write_text(json.dumps(asdict(result), indent=1))


if __name__ == "__main__":
    main()
