from __future__ import annotations

import multiprocessing
import os
import stat
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ostinato.native import cache as module
from ostinato.native.cache import Cache, Entry, machine_key
from ostinato.options import default_cache_dir

KEY = "a" * 64
HEADER = {"name": "model", "numbers": [1, 2.5, None], "unicode": "ü"}
BLOBS = [b"object", np.arange(1000, dtype=np.uint8), b"", np.arange(3, dtype=np.float32)]


def _stored(folder: Path) -> Path:
    Cache(folder).store(KEY, HEADER, BLOBS)
    return folder / KEY


def _loaded(folder: Path) -> Entry:
    entry = Cache(folder).load(KEY)
    assert entry is not None
    return entry


def test_round_trip(cache_dir: Path) -> None:
    _stored(cache_dir)
    entry = _loaded(cache_dir)
    assert entry.header == HEADER
    assert [blob.tobytes() for blob in entry.blobs] == [
        blob if isinstance(blob, bytes) else blob.tobytes() for blob in BLOBS
    ]


def test_blobs_are_aligned_and_cannot_be_written(cache_dir: Path) -> None:
    _stored(cache_dir)
    for blob in _loaded(cache_dir).blobs:
        assert blob.ctypes.data % 64 == 0
        assert not blob.flags.writeable
        assert not blob.flags.owndata


def test_permissions_keep_others_out(cache_dir: Path) -> None:
    path = _stored(cache_dir)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(cache_dir.stat().st_mode) == 0o700


def test_nothing_but_the_entry_is_left_in_the_folder(cache_dir: Path) -> None:
    _stored(cache_dir)
    _stored(cache_dir)
    assert os.listdir(cache_dir) == [KEY]


def test_absent_entry_and_absent_folder_are_misses(cache_dir: Path) -> None:
    assert Cache(cache_dir).load(KEY) is None
    assert Cache(None).load(KEY) is None
    Cache(None).store(KEY, HEADER, BLOBS)


def _damages() -> dict[str, Any]:
    def flip(position: int) -> Any:
        def damage(data: bytes) -> bytes:
            changed = bytearray(data)
            changed[position] ^= 1
            return bytes(changed)

        return damage

    places = (0, 8, 15, 16, 32, 63, 64, 70, 200, 1000, -1)
    return {
        **{f"bit flipped at {place}": flip(place) for place in places},
        **{
            f"cut to {size}": (lambda data, size=size: data[:size])
            for size in (0, 1, 63, 64, 65, 500)
        },
        "last byte missing": lambda data: data[:-1],
        "a byte more": lambda data: data + b"\0",
        "text": lambda data: b"hello" * 100,
        "zeros": lambda data: bytes(len(data)),
        "ones": lambda data: b"\xff" * len(data),
    }


@pytest.mark.parametrize("name", _damages())
def test_a_damaged_entry_is_a_miss_and_is_replaced(cache_dir: Path, name: str) -> None:
    path = _stored(cache_dir)
    path.write_bytes(_damages()[name](path.read_bytes()))
    assert Cache(cache_dir).load(KEY) is None
    _stored(cache_dir)
    assert _loaded(cache_dir).header == HEADER


def test_an_entry_under_another_key_is_a_miss(cache_dir: Path) -> None:
    path = _stored(cache_dir)
    path.rename(cache_dir / ("b" * 64))
    assert Cache(cache_dir).load("b" * 64) is None


def test_an_entry_of_another_user_is_a_miss(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stored(cache_dir)
    monkeypatch.setattr(module.os, "geteuid", lambda: os.getuid() + 1)
    assert Cache(cache_dir).load(KEY) is None


def test_a_link_or_folder_in_place_of_an_entry_is_a_miss(cache_dir: Path, tmp_path: Path) -> None:
    path = _stored(cache_dir)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert Cache(cache_dir).load(KEY) is None
    path.unlink()
    path.mkdir()
    assert Cache(cache_dir).load(KEY) is None


def test_a_loaded_entry_outlives_its_replacement(cache_dir: Path) -> None:
    path = _stored(cache_dir)
    entry = _loaded(cache_dir)
    Cache(cache_dir).store(KEY, {}, [b"other"])
    path.unlink()
    assert entry.blobs[0].tobytes() == b"object"


def test_a_folder_that_cannot_be_written_to_is_warned_about_once(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.warns(RuntimeWarning, match="not writable"):
        Cache(blocked / "cache").store(KEY, HEADER, BLOBS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Cache(blocked / "cache").store(KEY, HEADER, BLOBS)
    assert Cache(blocked / "cache").load(KEY) is None


def test_a_full_disk_leaves_no_file(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(source: str, target: Path) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(module.os, "replace", replace)
    with pytest.warns(RuntimeWarning, match="no space left"):
        _stored(cache_dir)
    assert os.listdir(cache_dir) == []


class Held:
    """Windows lets nobody replace a file that is open or mapped, for so many attempts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, attempts: int) -> None:
        self.left, self._replace = attempts, os.replace
        monkeypatch.setattr(module.os, "replace", self)
        monkeypatch.setattr(module.time, "sleep", lambda _: None)

    def __call__(self, source: str, target: Path) -> None:
        self.left -= 1
        if self.left >= 0:
            raise PermissionError("it is being used by another process")
        self._replace(source, target)


def test_an_entry_that_is_being_read_is_replaced_soon(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stored(cache_dir)
    Held(monkeypatch, 2)
    Cache(cache_dir).store(KEY, {"new": 1}, [b"new"])
    assert _loaded(cache_dir).header == {"new": 1}


def test_an_entry_that_is_mapped_stays(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stored(cache_dir)
    Held(monkeypatch, 1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Cache(cache_dir).store(KEY, {"new": 1}, [b"new"])
    assert _loaded(cache_dir).header == HEADER
    assert os.listdir(cache_dir) == [KEY]


def test_a_folder_that_takes_no_file_is_warned_about(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Held(monkeypatch, 1000)
    with pytest.warns(RuntimeWarning, match="another process"):
        _stored(cache_dir)
    assert os.listdir(cache_dir) == []


def test_keys_depend_on_every_part_and_on_where_parts_end() -> None:
    keys = {
        machine_key(*parts)
        for parts in (("a", "b"), ("ab", ""), ("a",), ("b", "a"), (b"a", b"b", b""), ())
    }
    assert len(keys) == 6
    assert machine_key("a", "b") == machine_key(b"a", b"b")


@pytest.mark.parametrize("fact", ["host", "versions"])
def test_keys_depend_on_machine_and_versions(monkeypatch: pytest.MonkeyPatch, fact: str) -> None:
    before = machine_key("a")
    monkeypatch.setattr(module.objects, fact, lambda: ("other", "machine", "+fast"))
    assert machine_key("a") != before


def test_keys_depend_on_the_package_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    before = machine_key("a")
    monkeypatch.setattr(module, "_source_stamp", lambda: "edited")
    assert machine_key("a") != before


def _write_and_read(folder: Path, number: int) -> int:
    """Store own content again and again; count loads that are neither writer's content."""
    wrong = 0
    cache = Cache(folder)
    for _ in range(40):
        cache.store(KEY, {"writer": number}, [bytes([number]) * 20_000])
        entry = cache.load(KEY)
        wrong += (
            entry is None or entry.blobs[0].tobytes() != bytes([entry.header["writer"]]) * 20_000
        )
    return wrong


def test_two_processes_writing_one_key_never_show_half_an_entry(cache_dir: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        assert pool.starmap(_write_and_read, [(cache_dir, 1), (cache_dir, 2)]) == [0, 0]
    assert os.listdir(cache_dir) == [KEY]


def _entries(folder: Path, letters: str, size: int = 10_000) -> None:
    """Entries of these keys, each used a day before the next."""
    for age, letter in enumerate(reversed(letters)):
        Cache(folder).store(letter * 64, {}, [bytes(size)])
        when = time.time() - 86400 * (age + 2)
        os.utime(folder / (letter * 64), (when, when))


def test_entries_used_long_ago_are_removed_when_all_take_too_much(cache_dir: Path) -> None:
    _entries(cache_dir, "abcd")
    (cache_dir / "notes.txt").write_text("somebody else's")
    # Seven eighths of the limit are room for three.
    Cache(cache_dir, limit=36_000).store("e" * 64, {}, [bytes(10_000)])
    assert sorted(name[0] for name in os.listdir(cache_dir)) == ["c", "d", "e", "n"]


def test_loading_an_entry_counts_as_use(cache_dir: Path) -> None:
    _entries(cache_dir, "abc")
    assert Cache(cache_dir).load("a" * 64) is not None
    assert Cache(cache_dir).trim(11_000) == 2
    assert os.listdir(cache_dir) == ["a" * 64]


def test_the_entry_just_stored_stays_whatever_the_limit(cache_dir: Path) -> None:
    Cache(cache_dir, limit=0).store(KEY, HEADER, BLOBS)
    assert _loaded(cache_dir).header == HEADER


def test_files_that_were_never_finished_go_after_a_day(cache_dir: Path) -> None:
    _stored(cache_dir)
    for name, age in ((".0123456789abcdef-old", 90_000), (".0123456789abcdef-new", 60)):
        (cache_dir / name).write_bytes(b"x")
        os.utime(cache_dir / name, (time.time() - age,) * 2)
    Cache(cache_dir).trim(1 << 30)
    assert sorted(os.listdir(cache_dir)) == [".0123456789abcdef-new", KEY]


@pytest.mark.parametrize(("mode", "is_used"), [(0o777, 0), (0o770, 0), (0o755, 1), (0o1777, 1)])
def test_a_folder_that_others_can_write_to_is_not_used(
    tmp_path: Path, mode: int, is_used: int
) -> None:
    folder = tmp_path / "shared"
    _stored(folder)
    folder.chmod(mode)
    if is_used:
        assert _loaded(folder).header == HEADER
        return
    with pytest.warns(RuntimeWarning, match="other users can write"):
        assert Cache(folder).load(KEY) is None
    Cache(folder).store("b" * 64, {}, [b"code"])
    assert os.listdir(folder) == [KEY]


def test_a_folder_of_another_user_is_not_used(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stored(cache_dir)
    facts = list(os.stat(cache_dir))
    facts[4] = 12345
    monkeypatch.setattr(module.os, "stat", lambda *_, **__: os.stat_result(facts))
    with pytest.warns(RuntimeWarning, match="other users can write"):
        assert Cache(cache_dir).load(KEY) is None


def test_a_large_entry_is_mapped(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_READ_UP_TO", 100)
    _stored(cache_dir)
    assert bytes(_loaded(cache_dir).blobs[0]) == b"object"


def test_the_folder_of_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for given, folder in [
        ("/cache", Path("/cache/ostinato")),
        ("", Path("/home/me/.cache/ostinato")),
        ("relative", Path("/home/me/.cache/ostinato")),
    ]:
        monkeypatch.setenv("XDG_CACHE_HOME", given)
        assert default_cache_dir() == folder

    def fail() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", fail)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert default_cache_dir() == tmp_path / f"ostinato-{os.getuid()}"
