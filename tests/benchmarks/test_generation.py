from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import bench_generation, decoders

BOTH = ["ostinato", "onnxruntime"]


@pytest.mark.parametrize("name", ["large", "large, prompt", "GPT-2", "Llama", "T5", "Whisper"])
def test_all_ways_to_generate_give_the_same_tokens(name: str, tmp_path: Path) -> None:
    prompt = 5 if name == "large, prompt" else 1
    decoder = decoders.small().get(name) or decoders.large(
        tmp_path, layers=1, width=32, prompt=prompt
    )
    calls = bench_generation.decoder_calls(decoder, 9, tmp_path, BOTH)
    one_by_one = ["loop, prompt by tokens"] * (prompt > 1)
    steps = ["steps", "onnxruntime's steps", "onnxruntime's loop"]
    assert list(calls) == ["loop", *one_by_one, *steps]
    for _ in range(2):
        first, *others = (call() for call in calls.values())
        assert first.shape == (9,)
        for other in others:
            np.testing.assert_array_equal(first, other)


def test_a_way_that_gives_something_else_is_named() -> None:
    calls = {"a": lambda: np.arange(3), "b": lambda: np.arange(1, 4)}
    with pytest.raises(SystemExit, match="which: b gives something else"):
        bench_generation.compared("which", calls, 0.01)


def test_whole_searches_give_the_same() -> None:
    transducer = [call() for call in bench_generation.transducer_calls(BOTH).values()]
    assert len(transducer) == 4 and len(np.unique(transducer[0])) > 3
    assert all(np.array_equal(one, transducer[0]) for one in transducer)
    ours, theirs = (call() for call in bench_generation.tacotron_calls(BOTH).values())
    assert ours.shape == (3, bench_generation.STEPS, 8)
    np.testing.assert_allclose(ours, theirs, atol=2e-3)


def test_caches_of_a_fixed_length_give_the_same(tmp_path: Path) -> None:
    decoder = decoders.large(tmp_path, layers=1, width=32, rows="N", places=16)
    calls = bench_generation.fixed_calls(decoder, 2, BOTH)
    first, *others = (call() for call in calls.values())
    assert len(others) == 3 and len(np.unique(first.argmax(-1))) == 1
    for other in others:
        np.testing.assert_allclose(first, other, atol=1e-4)
