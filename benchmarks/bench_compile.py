"""How long it takes until a DTLN model can run: compiled afresh, and loaded from the cache.

    taskset -c 1 python -m benchmarks.bench_compile --models DIR [--json FILE]

Every figure is the median over fresh processes. Imports are timed apart: what a session imports on
first use is imported before its construction is timed, so that both add up to the whole.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from benchmarks import dtln, fresh, harness


def _median(kind: str, model: Path, rounds: int) -> tuple[float, float]:
    """Cold: an empty cache folder every time. Cached: the second process on a folder."""
    samples = []
    with tempfile.TemporaryDirectory() as folder:
        if kind == "cached":
            fresh.run("start", "cold", model, folder)
        for i in range(rounds):
            cache = folder if kind == "cached" else Path(folder) / str(i)
            samples.append(fresh.run("start", kind, model, cache))
    imports, sessions = zip(*samples, strict=True)
    return statistics.median(imports), statistics.median(sessions)


def main() -> None:
    """Measure and print."""
    parser = harness.parser("time until a model can run")
    dtln.add_argument(parser)
    parser.add_argument("--rounds", type=int, default=5, help="fresh processes for each figure")
    parser.set_defaults(peers=["ostinato", "onnxruntime"])
    arguments = parser.parse_args()
    models = dtln.paths(arguments.models)
    wanted = harness.start(arguments)
    owners = {kind: kind if kind == "onnxruntime" else "ostinato" for kind in fresh.IMPORTS}
    kinds = [kind for kind, owner in owners.items() if owner in wanted]
    cases = {f"{model.name}, {kind}": (kind, model) for model in models for kind in kinds}
    figures = harness.each(
        "Starting", list(cases), lambda name: _median(*cases[name], arguments.rounds)
    )
    table = harness.table("Until the model can run", "ms", ["imports", "session"])
    for name, (imports, session) in zip(cases, figures, strict=True):
        table.add_row(name, f"{imports * 1e3:.0f}", f"{session * 1e3:.1f}")
    harness.console.print(table)
    rows = [
        {"case": name, "imports": imports, "session": session}
        for name, (imports, session) in zip(cases, figures, strict=True)
    ]
    harness.save(arguments.json, {"seconds": rows})


if __name__ == "__main__":
    main()
