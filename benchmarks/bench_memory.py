"""Memory of a fresh process that loads both DTLN models and runs them.

    taskset -c 1 python -m benchmarks.bench_memory --models DIR [--json FILE]

Ostinato loads from a cache that another process has filled. "resident" is what the process holds
at the end, "private" the part of it that no file backs (so that no other process can share it),
"peak" the most it ever held. The first row is Python with NumPy alone. Linux only.
"""

from __future__ import annotations

import tempfile

from benchmarks import dtln, fresh, harness


def main() -> None:
    """Measure and print."""
    parser = harness.parser("memory of a process with both DTLN models")
    dtln.add_argument(parser)
    parser.set_defaults(peers=["ostinato", "onnxruntime"])
    arguments = parser.parse_args()
    dtln.paths(arguments.models)
    wanted = [peer for peer in harness.start(arguments) if peer in ("ostinato", "onnxruntime")]
    with tempfile.TemporaryDirectory() as cache:
        if "ostinato" in wanted:
            fresh.run("memory", "ostinato", arguments.models, cache)
        figures = {
            kind: fresh.run("memory", kind, arguments.models, cache)
            for kind in (fresh.BASELINE, *wanted)
        }
    extra = "private over Python with NumPy"
    table = harness.table("Memory, MB", "process", [*fresh.MEMORY, extra])
    for kind, sizes in figures.items():
        columns = [*sizes.values(), sizes["private"] - figures[fresh.BASELINE]["private"]]
        table.add_row(kind, *(f"{size / 1e6:.1f}" for size in columns))
    harness.console.print(table)
    harness.save(arguments.json, {"bytes": figures})


if __name__ == "__main__":
    main()
