from __future__ import annotations

import warnings

import pytest

from ostinato import caller


def test_a_warning_points_to_the_program_however_deep_the_package_is() -> None:
    package = {"__name__": "ostinato.somewhere", "warn": caller.warn}
    exec("def inner(): warn('look', RuntimeWarning)\ndef outer(): inner()", package)
    for call in (package["inner"], package["outer"]):
        with pytest.warns(RuntimeWarning, match="look") as seen:
            call()
        assert [warning.filename for warning in seen] == [__file__]


def test_a_warning_without_a_program_is_given_as_well() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        exec("warn('alone')", {"__name__": "ostinato.__main__", "warn": caller.warn})
    assert len(seen) == 1
