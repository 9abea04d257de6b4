"""What the documentation says is there, is there: commands, options, files, links, figures."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import numpy as np
import onnx
import pytest
import typer.main

import ostinato
from ostinato import InferenceSession
from ostinato.cli.app import app
from ostinato.cli.inspect import Stage
from ostinato.compiler import optional_passes
from ostinato.program.functions import UNARY
from ostinato.schedule.pipeline import SCHEDULE_PASSES
from tools import api_report, walkthrough_models
from tools.walkthrough import BLOCK, MARKER, Excerpt, fill, printed

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").glob("*.md")])
README = REPOSITORY / "README.md"
WALKTHROUGH = REPOSITORY / "docs" / "walkthrough.md"

ROOMS = sorted(path.parent.name for path in (REPOSITORY / "ostinato").glob("*/__init__.py"))

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
COMMANDS = {name: command for name, command in typer.main.get_command(app).commands.items()}
OPTIONS = {
    name: {option for parameter in command.params for option in parameter.opts}
    for name, command in COMMANDS.items()
}
by_name = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in FENCE.findall(page.read_text()) if kind == language]


def shell_lines(page: Path) -> Iterator[str]:
    """Every command line that a page shows: in fenced blocks and as inline code."""
    text = page.read_text()
    for _, block in FENCE.findall(text):
        yield from (line.removeprefix("$ ") for line in block.splitlines())
    yield from re.findall(r"`([^`\n]+)`", FENCE.sub("", text))


def commands(page: Path, program: str) -> list[list[str]]:
    """The arguments of every shown call of `program`, without comments."""
    found = []
    for line in shell_lines(page):
        if line.startswith(program + " "):
            found.append(shlex.split(line.removeprefix(program + " "), comments=True))
    return found


def test_pages_are_found() -> None:
    names = {page.name for page in PAGES}
    assert {"README.md", "CHANGELOG.md", "design.md", "numerics.md", "walkthrough.md"} <= names


def test_the_reference_is_what_docstrings_say() -> None:
    written = (REPOSITORY / "docs" / "api.md").read_text()
    assert written == api_report.document(), "run: python -m tools.api_report --write docs/api.md"


def test_every_public_name_is_in_the_reference() -> None:
    shown = (REPOSITORY / "docs" / "api.md").read_text()
    for module in (ostinato, ostinato.streaming, ostinato.training, ostinato.onnxruntime):
        for name in module.__all__:
            value = getattr(module, name)
            assert not callable(value) or f"\n### {name}\n" in shown, name


# Links and files


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@by_name
def test_links_inside_the_repository_resolve(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        assert other.exists(), target
        assert not anchor or anchor in anchors(other), target


@by_name
def test_files_that_are_named_exist(page: Path) -> None:
    for code in re.findall(r"`([^`\n]+)`", FENCE.sub("", page.read_text())):
        if re.fullmatch(r"[\w./]+\.py", code) and "/" in code:
            places = (REPOSITORY / code, REPOSITORY / "ostinato" / code)
            assert any(place.exists() for place in places), code


@by_name
def test_no_path_of_one_machine(page: Path) -> None:
    assert not re.search(r"(?<![\w.])/(home|tmp|root|work|Users)/", page.read_text())


# Commands


@by_name
def test_shown_commands_and_options_exist(page: Path) -> None:
    for arguments in commands(page, "ostinato"):
        if arguments[0] == "COMMAND":
            continue
        assert arguments[0] in COMMANDS, arguments
        known = OPTIONS[arguments[0]] | {"--help"}
        for argument in arguments[1:]:
            if argument.startswith("-"):
                assert argument in known, arguments
    for line in shell_lines(page):
        if line.startswith("--"):
            option = re.split(r"[ =,]", line)[0]
            assert any(option in known for known in OPTIONS.values()), line


@by_name
def test_passes_that_are_left_out_exist(page: Path) -> None:
    for arguments in commands(page, "ostinato"):
        for option, value in itertools.pairwise(arguments):
            if option == "--disable" and value != "PASS":
                assert value in optional_passes(), arguments


def shown_modules(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Modules that the page runs as programs, each with its options."""
    for prefix in ("taskset -c 1 python -m", "python -m"):
        for module, *arguments in commands(page, prefix):
            yield module, [a for a in arguments if a.startswith("--")]


@by_name
def test_shown_benchmarks_exist_and_take_their_arguments(page: Path) -> None:
    for module, options in shown_modules(page):
        assert importlib.util.find_spec(module) is not None, module
        if module in helps():
            assert all(option in helps()[module] for option in options), (module, options)


# Prints what modules print when they are asked for help, one after the other in one process. Those
# that need a package that is not installed cannot be asked.
HELP = """
import contextlib, io, json, runpy, sys
texts = {}
for module in sys.argv[1:]:
    sys.argv, text = [module, "--help"], io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except ModuleNotFoundError as error:
            if error.name.partition(".")[0] in ("benchmarks", "ostinato"):
                raise
            continue
    texts[module] = text.getvalue()
json.dump(texts, sys.stdout)
"""


@cache
def helps() -> dict[str, str]:
    """The help of the benchmarks that pages show with options."""
    shown = {module for page in PAGES for module, options in shown_modules(page) if options}
    named = sorted(module for module in shown if module.startswith("benchmarks."))
    command = [sys.executable, "-c", HELP, *named]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=True)
    return json.loads(done.stdout)


@by_name
def test_shown_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (REPOSITORY / "Makefile").read_text(), re.M))
    for arguments in commands(page, "make"):
        assert arguments[0] in targets, arguments


def test_the_page_on_the_command_line_has_every_command_and_stage() -> None:
    text = (REPOSITORY / "docs" / "cli.md").read_text()
    for name in COMMANDS:
        assert f"| `ostinato {name}" in text
    assert ", ".join(get_args(Stage)) in text


# The README


def test_the_readme_has_python_and_commands() -> None:
    assert blocks(README, "python")
    assert commands(README, "ostinato")


@pytest.mark.parametrize("code", blocks(README, "python"))
def test_python_of_the_readme_runs(
    code: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    exec(compile(code, str(README), "exec"), {})


def is_program(code: str) -> bool:
    """Whether a block imports what it takes, and asks for no file or server of the reader's."""
    files = set(re.findall(r'"([^"]*\.(?:onnx|so))"', code))
    files -= set(re.findall(r'save\(.*"([^"]*)"\)', code))
    is_whole = code.startswith(("import ", "from ")) and "ServerClient" not in code
    return is_whole and all((REPOSITORY / name).exists() for name in files)


PROGRAMS = [
    pytest.param(page, code, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, code in enumerate(blocks(page, "python"))
    if page != README and is_program(code)
]


@pytest.mark.parametrize(("page", "code"), PROGRAMS)
def test_programs_of_the_pages_run(
    page: Path, code: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ostinato").symlink_to(REPOSITORY / "ostinato")
    for package in ("torch", "keras", "ray"):
        if re.search(rf"^(import|from) {package}\b", code, re.M):
            pytest.importorskip(package, reason=f"{package} is not installed")
    exec(compile(code, str(page), "exec"), {})


GRU = """<ir_version: 8, opset_import: ["": 17]>
gru (float[time, 1, 8] x) => (float[time, 1, 1, 8] y) {
  y = GRU <hidden_size = 8, linear_before_reset = 1> (x, W, R)
}"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What MODEL stands for in the README."""
    proto = onnx.parser.parse_model(GRU)
    rng = np.random.default_rng(0)
    for name in "WR":
        weights = rng.standard_normal((1, 24, 8)).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    path = tmp_path_factory.mktemp("model") / "gru.onnx"
    onnx.save(proto, str(path))
    return path


@pytest.mark.parametrize("arguments", commands(README, "ostinato"), ids=" ".join)
def test_commands_of_the_readme_run(arguments: list[str], model: Path, tmp_path: Path) -> None:
    if "onnxruntime" in arguments and not importlib.util.find_spec("onnxruntime"):
        pytest.skip("onnxruntime is not installed")
    given = [str(model) if argument == "MODEL" else argument for argument in arguments]
    if arguments[0] == "bench":
        given += ["--seconds", "0.05"]
    result = subprocess.run(
        [sys.executable, "-m", "ostinato", *given],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        },
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout


# The walkthrough

MARKERS = list(MARKER.finditer(WALKTHROUGH.read_text()))


def test_every_printout_is_below_its_marker() -> None:
    text = WALKTHROUGH.read_text()
    assert len(MARKERS) >= 10
    for marker in MARKERS:
        below = text[marker.end() :]
        assert below.startswith(f"\n```text\n$ {marker['command']}\n"), marker[0]


@pytest.mark.parametrize("marker", MARKERS, ids=lambda m: f"{m.start()}")
def test_printouts_are_what_the_commands_print(marker: re.Match[str]) -> None:
    block = BLOCK.match(WALKTHROUGH.read_text(), marker.end())
    assert block is not None
    part = marker[0] + block[0] + "\n"
    assert fill(part, lambda command: printed()[command]) == part


def test_models_of_the_walkthrough_are_those_that_the_tool_writes() -> None:
    for name, model in walkthrough_models.build().items():
        assert onnx.load(walkthrough_models.MODELS / name) == model


def test_both_models_of_the_walkthrough_have_the_same_results() -> None:
    by_hand, node = (InferenceSession(model) for model in walkthrough_models.build().values())
    x = np.random.default_rng(1).standard_normal((7, 1, 16)).astype(np.float32)
    zeros = np.zeros((1, 64), np.float32)
    mask, h, c = by_hand.run(None, {"x": x, "h_0": zeros, "c_0": zeros})
    others = node.run(None, {"x": x, "h_0": zeros[None], "c_0": zeros[None]})
    for one, other in zip((mask, h[None], c[None]), others, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


LISTING = "loop a\n  kernel k1 from p\n    x\n  kernel k2 from q\n    y\n    z\nkernel k3\n"


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"start": "k2", "until": "k3"}, ["  kernel k2 from q", "    y", "    z"]),
        (
            {"keep": "kernel", "lines": 2},
            ["  kernel k1 from p", "...", "  kernel k2 from q", "..."],
        ),
        ({"keep": "k1|k3", "whole": True}, ["  kernel k1 from p", "    x", "...", "kernel k3"]),
        ({"after": "k1", "start": "from", "lines": 1, "width": 12}, ["  kernel ...", "..."]),
    ],
)
def test_excerpts(options: dict[str, str], shown: list[str]) -> None:
    assert Excerpt("ostinato inspect m", **options).cut(LISTING) == shown


def test_a_pattern_that_finds_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no line matches 'k9'"):
        Excerpt("ostinato inspect m", start="k9").cut(LISTING)


def test_printouts_are_replaced_and_prose_is_kept() -> None:
    marker = '<!-- excerpt kernel="q" from="KERNEL": ostinato inspect m --stage program -->'
    page = f"before\n\n{marker}\n```text\nold\n```\n\nafter\n"
    filled = fill(page, lambda command: LISTING)
    new = "  kernel k2 from q\n    y\n    z\nkernel k3"
    command = "$ ostinato inspect m --stage program"
    assert filled == f"before\n\n{marker}\n```text\n{command}\n{new}\n```\n\nafter\n"
    assert fill(filled, lambda command: LISTING) == filled


# Numerics


def test_the_table_of_accuracy_has_every_function_within_its_bound() -> None:
    records = pytest.importorskip("tests.program.test_functions").RECORDS
    text = (REPOSITORY / "docs" / "numerics.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|$", text, re.M)
    figures = {name: (float(single), float(double)) for name, single, double in rows}
    assert figures.keys() == set(UNARY)
    for record in records:
        single, double = figures[record.name]
        assert single <= record.ulp[0]
        assert double <= record.ulp[1]


def test_the_design_has_a_row_for_each_schedule_pass_in_order() -> None:
    text = (REPOSITORY / "docs" / "design.md").read_text()
    rows = re.findall(r"^\| `(\w+)`", text[text.index("| pass | rule |") :], re.M)
    assert rows == [item.name for item in SCHEDULE_PASSES]


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/design.md"])
def test_every_room_is_described(page: str) -> None:
    text = (REPOSITORY / page).read_text()
    assert [room for room in ROOMS if not re.search(rf"\b{room}/", text)] == []
