"""The wheel and the source distribution, installed where nothing else is."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from ostinato.version import __version__
from tools.install_extras import PINNED, ROOT

pytestmark = pytest.mark.extras
MODEL = "ostinato/demo/denoiser.onnx"


def run(*command: object, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make dist` makes, of the files that are committed or would be."""
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard").splitlines()
    for name in listed:
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", made, ".", cwd=source)
    return made


def test_one_wheel_is_for_every_system(dist: Path) -> None:
    names = sorted(path.name for path in dist.iterdir())
    assert names == [f"ostinato-{__version__}-py3-none-any.whl", f"ostinato-{__version__}.tar.gz"]


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    names = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "ostinato")
    assert names == {name for name in listed.splitlines() if (ROOT / name).exists()}


def test_the_source_distribution_builds_and_has_the_licence(dist: Path) -> None:
    (source,) = dist.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", MODEL} <= names
    assert not any(name.startswith("tests/") for name in names)


def test_the_wheel_works_in_a_new_environment(dist: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "clean", with_pip=True)
    python, (wheel,) = tmp_path / "clean" / "bin" / "python", dist.glob("*.whl")
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *PINNED, wheel)
    assert __version__ in run(python.with_name("ostinato"), "--version", cwd=tmp_path)
    code = "import ostinato.demo as d; print(d.MODEL)"
    model = run(python, "-c", code, cwd=tmp_path).strip()
    assert model.startswith(str(tmp_path))
    shown = run(python.with_name("ostinato"), "run", model, "--no-cache", cwd=tmp_path)
    assert "mask" in shown
    run(python, "-m", "pip", "check", cwd=tmp_path)
