"""One call in the trace event format of Chrome, which Perfetto reads."""

from __future__ import annotations

import json
from typing import Any

from ostinato.profiling.measuring import Profile

_PROCESS = {"pid": 1}


def text(profile: Profile) -> str:
    """The trace as JSON: a slice for each run of a kernel, a counter of working memory."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", **_PROCESS, "args": {"name": profile.model}},
    ]
    for thread in range(len(profile.waiting)):
        name = f"one call, thread {thread}" if thread else "one call"
        place = {**_PROCESS, "tid": 1 + thread}
        events.append({"ph": "M", "name": "thread_name", **place, "args": {"name": name}})
    for number, begin, end, thread in profile.events:
        kernel = profile.kernels[number]
        events.append(
            {
                "ph": "X",
                "name": kernel.title,
                "cat": "kernel",
                **_PROCESS,
                "tid": 1 + thread,
                "ts": begin * 1e6,
                "dur": (end - begin) * 1e6,
                "args": {"kernel": kernel.name, "bytes": kernel.bytes, "flop": kernel.flops},
            }
        )
    for begin, size in profile.memory:
        events.append(
            {"ph": "C", "name": "memory", **_PROCESS, "ts": begin * 1e6, "args": {"bytes": size}}
        )
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})
