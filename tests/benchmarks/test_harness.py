import numpy as np
import pytest

from benchmarks import harness
from benchmarks.harness import Figures, Measured, difference
from ostinato.cli.timing import Timing


def measured(seconds: float, off: float | None = None) -> Measured:
    return Measured(Timing(seconds, seconds, seconds, 1, 1), off)


def test_best_ratio_leaves_out_who_is_wrong() -> None:
    row = Figures(
        "m",
        bound=1e-6,
        peers={
            "ostinato": measured(2e-6, 1e-7),
            "fast but wrong": measured(1e-6, 1.0),
            "no number": measured(1e-6, float("nan")),
            "a": measured(6e-6, 1e-6),
            "b": measured(5e-6),
            "absent": Measured(error="no"),
        },
    )
    assert row.best_ratio() == ("b", pytest.approx(2.5))
    assert row.of_bound() == pytest.approx(0.5)


def test_no_ratio_without_both_sides() -> None:
    assert Figures("m", peers={"ostinato": measured(1.0)}).best_ratio() is None
    assert Figures("m", peers={"a": measured(1.0)}).best_ratio() is None
    assert Figures("m", peers={"ostinato": measured(1.0)}).of_bound() is None


def test_difference() -> None:
    one, two = np.ones((2, 2), np.float32), np.zeros(0, np.float32)
    assert difference([one, two], [one, two]) == 0
    assert difference([one, two], [one * 3, two]) == 2
    assert difference([one], [one[:1]]) == float("inf")
    assert difference([one], [one, two]) == float("inf")


def test_unknown_peers_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    parser = harness.parser("a benchmark", known=("eager", "ostinato"))
    assert parser.parse_args(["--peers", "eager"]).peers == ["eager"]
    with pytest.raises(SystemExit):
        parser.parse_args(["--peers", "eager,lazy"])
    assert "unknown peers lazy: there are eager, ostinato" in capsys.readouterr().err
