"""Recurrent ops, and MatMul and Conv alone, beside other runtimes and this machine's lower bound.

    taskset -c 1 python -m benchmarks.bench_ops [--models 'gru*'] [--peers A,B] [--json FILE]

The bound of a recurrence is the sum of its phases: the input projection at FMA peak, then every
step at the rate its weights can be read from the cache they fit in. Activations count nothing.
"""

from __future__ import annotations

import fnmatch
import tempfile
from pathlib import Path

from benchmarks import harness, models


def main() -> None:
    """Measure and print."""
    parser = harness.parser("recurrent ops and micro kernels, side by side")
    parser.add_argument("--models", default="*", help="pattern of model names")
    harness.add_limits(parser)
    arguments = parser.parse_args()
    wanted = [peer for peer in harness.start(arguments) if peer != "litert"]
    limits = harness.limits(arguments.limits)
    rows: list[harness.Figures] = []
    with tempfile.TemporaryDirectory() as folder:

        def one(name: str) -> harness.Figures:
            model = cases[name]()
            path, bound = model.save(Path(folder)), model.work.bound(limits)
            feeds = models.feeds(model.proto)
            figures = harness.measure(name, path, feeds, wanted, arguments.seconds, bound)
            path.unlink()
            return figures

        for title, cases in (("Recurrent ops", models.RECURRENT), ("Micro", models.MICRO)):
            names = fnmatch.filter(cases, arguments.models)
            found = harness.each(title, names, one)
            if found:
                harness.console.print(harness.peer_table(title, found, wanted))
            rows += found
    harness.notes(rows)
    harness.save(arguments.json, {"rows": harness.rows_as_json(rows)})


if __name__ == "__main__":
    main()
