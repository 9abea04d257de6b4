"""Every example runs, is short, and says what it shows."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PROGRAMS = [p for p in sorted((REPOSITORY / "examples").glob("*.py")) if p.stem != "usage"]
# A program that needs an extra is run by tests/extras.
EXAMPLES = [path for path in PROGRAMS if path.stem != "score_corpus"]
# What an example must print: its last sentence, or a figure that it is about.
SHOWN = {
    "compare_onnxruntime": "largest difference",
    "custom_cell": "in a loop of T steps: hr, gates",
    "denoise_dtln": "of 8 ms, ",
    "detect_speech": "speech from ",
    "finetune_gru": "fine-tuned: ",
    "first_look": "12.5 dB after",
    "generate": "beam (2, 4, 12) first row: ",
    "read_report": "every step of the loop reads",
    "run_time_lengths": "same bits for every length",
    "streaming": "100 frames, same bits",
}
# Arguments of those that need files: the models and the recording are not part of the repository.
MODELS = REPOSITORY.parent / "shared" / "models"
SPEECH = MODELS / "speech_16k.wav"
ARGUMENTS: dict[str, list[Path | str]] = {
    "denoise_dtln": [MODELS, SPEECH, "clean.wav"],
    "detect_speech": [MODELS / "silero_vad.onnx", SPEECH],
}
# What takes long shows the same with a quarter of the sound and of the batches, in fewer epochs.
SHORTER = {
    "finetune_gru": {"(2.0": "(0.5", "seed in range(8)": "seed in range(2)", "epochs=6": "epochs=2"}
}


def test_the_page_of_the_examples_has_all_of_them() -> None:
    folder = REPOSITORY / "examples"
    linked = re.findall(r"\]\(([^)]*)\)", (folder / "README.md").read_text())
    assert all((folder / link).exists() for link in linked)
    assert {path.name for path in PROGRAMS} <= {*linked}


def test_every_example_is_in_the_table() -> None:
    assert [path.stem for path in EXAMPLES] == sorted(SHOWN)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs(path: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    if path.stem == "compare_onnxruntime" and not importlib.util.find_spec("onnxruntime"):
        pytest.skip("onnxruntime is not installed")
    arguments = ARGUMENTS.get(path.stem, [])
    missing = [a for a in arguments if isinstance(a, Path) and not a.exists()]
    if missing:
        pytest.skip(f"{missing[0]} is not here")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(path.parent)]),
        # Half of them begin with the same model.
        "XDG_CACHE_HOME": str(tmp_path_factory.getbasetemp() / "cache-of-examples"),
        "MPLBACKEND": "Agg",
    }
    program = tmp_path / path.name
    program.write_text(shorter(path))
    result = subprocess.run(
        [sys.executable, str(program), *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert SHOWN[path.stem] in result.stdout


def shorter(path: Path) -> str:
    """The source of an example, with less work where it takes long."""
    source = path.read_text()
    for long, short in SHORTER.get(path.stem, {}).items():
        assert long in source, long
        source = source.replace(long, short)
    return source


by_program = pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)


def call(path: Path, *arguments: str, blocked: str = "") -> subprocess.CompletedProcess[str]:
    """An example as a program in which the package `blocked` cannot be imported."""
    start = f"""import runpy, sys
sys.argv, sys.path[0] = {[str(path), *arguments]!r}, {str(path.parent)!r}
if {blocked!r}:
    sys.modules[{blocked!r}] = None
runpy.run_path(sys.argv[0], run_name='__main__')"""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(
        [sys.executable, "-c", start], capture_output=True, text=True, env=environment
    )


def says(result: subprocess.CompletedProcess[str]) -> str:
    """The one line that a program ended with."""
    assert result.returncode == 2, result.stderr
    (line,) = result.stderr.splitlines()
    return line


@by_program
def test_called_wrongly_it_says_how_to_call_it(path: Path) -> None:
    assert f"{path.stem}.py: expected " in says(call(path, "one", "two", "three", "four"))


@by_program
def test_without_a_package_it_says_what_to_install(path: Path) -> None:
    operands = re.findall(rf"python examples/{path.stem}.py (.*)", path.read_text())
    line = says(call(path, *"".join(operands).split(), blocked="numpy"))
    assert line.startswith(f"{path.stem}.py: numpy is not installed: pip install ")


@pytest.mark.parametrize("stem", ["denoise_dtln", "detect_speech"])
def test_without_its_files_it_says_which_is_missing(stem: str, tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    missing = [str(tmp_path / str(position)) for position in range(len(ARGUMENTS[stem]))]
    assert str(tmp_path) in says(call(REPOSITORY / "examples" / f"{stem}.py", *missing))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_is_short_and_explained(path: Path) -> None:
    source = path.read_text()
    # The cells of a notebook are read one by one.
    assert len(source.splitlines()) < (60 if "# %%" in source else 40)
    assert len(ast.get_docstring(ast.parse(source)) or "") > 80
