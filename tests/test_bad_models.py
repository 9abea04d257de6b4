"""What cannot be is refused: by an error of ours that names the node, before memory is touched."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.bad_models import BAD, GRAPHS, LENIENT, MEMORY

Records = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def records() -> Records:
    """What became of all variants of each model: those without an outcome ended their process."""
    command = [sys.executable, "-m", "tests.bad_models"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent.parent
    )
    assert done.returncode == 0, done.stderr[-3000:]
    last: dict[str, dict[str, Any]] = {}
    for line in done.stdout.splitlines():
        record = json.loads(line)
        last[record["name"]] = record
    by_model: Records = defaultdict(list)
    for name, record in last.items():
        by_model[name.partition("/")[0]].append(record)
    return by_model


@pytest.mark.parametrize("name", [*BAD, *GRAPHS])
def test_a_bad_model_is_refused_by_name(records: Records, name: str) -> None:
    assert len(records[name]) >= 2
    for record in records[name]:
        where, outcome = (
            record["name"],
            record.get("outcome", "its process ended, or took too long"),
        )
        if name in LENIENT and outcome == "ran: on a reference kernel":
            continue
        assert outcome.startswith("refused: "), f"{where}: {outcome}"
        assert re.search(r"'n['/]| n\.\d+: ", outcome), f"{where}: {outcome}"
        assert record["grown"] < MEMORY, f"{where}: {record['grown']} bytes"
