from __future__ import annotations

import pytest

from tests.extras import environments
from tools import install_extras

pytestmark = pytest.mark.extras


@pytest.mark.parametrize("name", install_extras.ENVIRONMENTS)
def test_an_environment_has_what_belongs_into_it(name: str) -> None:
    done = environments.run(name, "-m", "pip", "check")
    assert done.returncode == 0, done.stdout


def test_an_environment_that_is_there_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    environments.python("main")
    assert install_extras.make("main") == []
    assert not capsys.readouterr().out


def test_a_name_that_does_not_exist_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert install_extras.main(["nothing"]) == 2
    assert "main" in capsys.readouterr().err
