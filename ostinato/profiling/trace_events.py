"""One call in the trace event format of Chrome, which Perfetto reads."""

from __future__ import annotations

import json
from typing import Any

from ostinato.profiling.measuring import Profile

# Process and thread in the trace.
_PLACE = {"pid": 1, "tid": 1}


def text(profile: Profile) -> str:
    """The trace as JSON: a slice for each run of a kernel, a counter of working memory."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", **_PLACE, "args": {"name": profile.model}},
        {"ph": "M", "name": "thread_name", **_PLACE, "args": {"name": "one call"}},
    ]
    for number, begin, end in profile.events:
        kernel = profile.kernels[number]
        events.append(
            {
                "ph": "X",
                "name": kernel.title,
                "cat": "kernel",
                **_PLACE,
                "ts": begin * 1e6,
                "dur": (end - begin) * 1e6,
                "args": {"kernel": kernel.name, "bytes": kernel.bytes, "flop": kernel.flops},
            }
        )
    for begin, size in profile.memory:
        events.append(
            {"ph": "C", "name": "memory", **_PLACE, "ts": begin * 1e6, "args": {"bytes": size}}
        )
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})
