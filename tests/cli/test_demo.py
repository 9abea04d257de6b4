import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke


def test_demo_reports_and_writes(invoke: Invoke, tmp_path: Path) -> None:
    for package in ("soundfile", "matplotlib"):
        pytest.importorskip(package, reason="a package of ostinato[demo] is not installed")
    result = invoke("demo", "--output", tmp_path / "out", "--json")
    assert result.exit_code == 0, result.stderr
    record = json.loads(result.stdout)
    assert record["gain_db"] == pytest.approx(record["snr_out_db"] - record["snr_in_db"])
    assert record["timing"]["median_us"] > 0
    for file in record["files"].values():
        assert Path(file).stat().st_size > 1000

    text = invoke("demo", "--output", tmp_path / "out").stdout
    assert f"{record['gain_db']:+.1f} dB" in text
    assert all(file in text for file in record["files"].values())


def test_a_recording_that_is_none_is_refused(invoke: Invoke, tmp_path: Path) -> None:
    pytest.importorskip("soundfile", reason="a package of ostinato[demo] is not installed")
    (tmp_path / "x.wav").write_bytes(b"text")
    result = invoke("demo", "--wav", tmp_path / "x.wav", "--output", tmp_path)
    assert result.exit_code == 2
    assert "x.wav" in result.stderr
