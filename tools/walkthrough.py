"""Fills in the printouts of docs/walkthrough.md by running the commands that it names.

    python -m tools.walkthrough

The models are part of the repository (tools/walkthrough_models.py), given by their path in it. The
commands compile for one kind of CPU, whichever this machine has: `TARGET`. Each printout stands
below a marker:

    <!-- excerpt from="^kernel .*lstm" lines="9": ostinato inspect MODEL --stage schedule -->

after, from, until: patterns of a line above, of the first line shown, and of the line before which
the excerpt ends. keep: only lines with this pattern, with `whole` also the deeper lines below them.
lines: at most so many. width: longer lines are cut (default 116). kernel: `KERNEL` in the patterns
is the name of the scheduled kernel that computes this node. What was left out shows as `...`, tabs
become spaces; nothing else is changed, nor is the prose.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = REPOSITORY / "docs" / "walkthrough.md"
MARKER = re.compile(r"^<!-- excerpt(?P<options>.*?): (?P<command>ostinato .+) -->$", re.M)
BLOCK = re.compile(r"\n```text\n.*?\n```(?=\n)", re.S)
# What LLVM is told instead of this machine: x86-64 with AVX-512, no CPU in particular.
TARGET = (
    "x86_64-unknown-linux-gnu",
    "x86-64-v4",
    "+avx2,+fma,+avx512f,+avx512vl,+avx512dq,+avx512bw,+avx512cd",
)
# Runs `ostinato` with the arguments that follow. Nothing that is compiled for `TARGET` is called.
# Prints what commands print, one after the other in one process.
RUN = f"""
import contextlib, io, json, shlex, sys
from ostinato.codegen import objects
objects.host = lambda: {TARGET}
from ostinato.cli import main
texts = {{}}
for command in sys.argv[1:]:
    sys.argv, text = shlex.split(command), io.StringIO()
    with contextlib.redirect_stdout(text):
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise
    texts[command] = text.getvalue()
json.dump(texts, sys.stdout)
"""
KEYS = {"after", "from", "until", "keep", "whole", "lines", "width", "kernel"}
GAP = "..."


@dataclass(frozen=True)
class Excerpt:
    """A marker: the command to run and which of its lines to show."""

    command: str
    after: str = ""
    start: str = ""
    until: str = ""
    keep: str = ""
    whole: bool = False
    lines: int = 10_000
    width: int = 116
    kernel: str = ""

    def resolved(self, output: Callable[[str], str]) -> Excerpt:
        """The excerpt with the number of its kernel in place of `KERNEL`."""
        if not self.kernel:
            return self
        model = self.command.split()[2]
        schedule = output(f"ostinato inspect {model} --stage schedule")
        found = re.search(rf"^ *kernel (\S+) .*{re.escape(self.kernel)}", schedule, re.M)
        if found is None:
            raise ValueError(f"{self.command}: no kernel computes {self.kernel!r}")
        patterns = (self.after, self.start, self.until, self.keep)
        after, start, until, keep = (p.replace("KERNEL", re.escape(found[1])) for p in patterns)
        return replace(self, after=after, start=start, until=until, keep=keep, kernel="")

    def cut(self, text: str) -> list[str]:
        """The lines to show. Raises `ValueError` where a pattern is not found."""
        shown: list[str] = []
        previous = -1
        for number, line in self._wanted(text.rstrip("\n").split("\n")):
            if shown and number > previous + 1:
                shown.append(GAP)
            previous = number
            line = line.expandtabs().rstrip()
            shown.append(line if len(line) <= self.width else line[: self.width - 4] + " " + GAP)
        while shown and not shown[-1]:
            shown.pop()
        if not shown:
            raise ValueError(f"{self.command}: nothing to show for {self}")
        return shown

    def _wanted(self, lines: list[str]) -> Iterator[tuple[int, str]]:
        above = _find(lines, self.after, 0, self.command)
        first = _find(lines, self.start, above, self.command)
        last = _find(lines, self.until, first + 1, self.command) if self.until else len(lines)
        kept: list[int] = []
        depth = 10_000
        for i in range(first, last):
            indent = len(lines[i]) - len(lines[i].lstrip())
            if re.search(self.keep, lines[i]):
                depth = indent
            elif not self.whole or indent <= depth:
                depth = 10_000
                continue
            kept.append(i)
        yield from ((i, lines[i]) for i in kept[: self.lines])
        if len(kept) > self.lines:
            yield last + 1, ""


def _find(lines: list[str], pattern: str, start: int, command: str) -> int:
    for i in range(start, len(lines)):
        if re.search(pattern, lines[i]):
            return i
    raise ValueError(f"{command}: no line matches {pattern!r}")


def parse(marker: re.Match[str]) -> Excerpt:
    """The excerpt that a marker asks for. Raises `ValueError` for an option that does not exist."""
    options = dict(item.split("=", 1) for item in shlex.split(marker["options"]))
    unknown = options.keys() - KEYS
    if unknown:
        raise ValueError(f"{marker[0]}: no option {sorted(unknown)[0]!r}; there are {sorted(KEYS)}")
    return Excerpt(
        marker["command"],
        options.get("after", ""),
        options.get("from", ""),
        options.get("until", ""),
        options.get("keep", ""),
        options.get("whole", "") == "yes",
        int(options.get("lines", 10_000)),
        int(options.get("width", 116)),
        options.get("kernel", ""),
    )


def fill(page: str, output: Callable[[str], str]) -> str:
    """The page with the block below every marker replaced by `output(command)`, cut."""
    pieces: list[str] = []
    end = 0
    for marker in MARKER.finditer(page):
        excerpt = parse(marker).resolved(output)
        lines = [f"$ {excerpt.command}", *excerpt.cut(output(excerpt.command))]
        pieces += [page[end : marker.end()], "\n```text\n", "\n".join(lines), "\n```"]
        old = BLOCK.match(page, marker.end())
        end = old.end() if old else marker.end()
    return "".join([*pieces, page[end:]])


@functools.cache
def printed() -> dict[str, str]:
    """What the commands of the page print, run in the repository, compiling for `TARGET`."""
    commands = sorted({found["command"] for found in MARKER.finditer(PAGE.read_text())})
    assert all(command.startswith("ostinato ") for command in commands), commands
    done = subprocess.run(
        [sys.executable, "-c", RUN, *commands],
        check=True,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "COLUMNS": "112"},
    )
    texts: dict[str, str] = json.loads(done.stdout)
    return texts


def main() -> None:
    """Rewrite the page."""
    page = PAGE.read_text()
    PAGE.write_text(fill(page, lambda command: printed()[command]))


if __name__ == "__main__":
    main()
