from __future__ import annotations

from pathlib import Path

import pytest

from tests.extras import environments
from tools import install_extras

pytestmark = pytest.mark.extras


@pytest.mark.parametrize("name", install_extras.ENVIRONMENTS)
def test_an_environment_has_what_belongs_into_it(name: str) -> None:
    # Isolated: metadata of this package beside its source are not those of the environment.
    done = environments.run(name, "-I", "-m", "pip", "check")
    assert done.returncode == 0, done.stdout


def test_an_environment_that_is_as_it_should_be_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Not one of those that tests run in: making it anew would remove them.
    monkeypatch.setattr(install_extras, "FOLDER", tmp_path)
    stamp = tmp_path / "main" / ".ready"
    stamp.parent.mkdir()
    stamp.write_text(install_extras.key("main"))
    assert install_extras.make("main") == []
    assert stamp.exists() and not capsys.readouterr().out


def test_a_name_that_does_not_exist_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert install_extras.main(["nothing"]) == 2
    assert "main" in capsys.readouterr().err
