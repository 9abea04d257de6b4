from __future__ import annotations

import io

from rich.console import Console

from ostinato.training.progress import Progress


def shown(is_terminal: bool, is_shown: bool = True) -> str:
    file = io.StringIO()
    console = Console(file=file, force_terminal=is_terminal, width=120)
    with Progress(2, is_shown, console) as progress:
        for _ in range(2):
            for number in progress.each([1.0, 2.0, 3.0]):
                assert progress.show(number) == number
    return file.getvalue()


def test_epochs_steps_and_the_loss_are_shown() -> None:
    text = shown(is_terminal=True)
    for part in ("epoch 1 of 2", "epoch 2 of 2", "3/3", "loss 1."):
        assert part in text


def test_nothing_is_shown_without_a_terminal_or_on_demand() -> None:
    assert shown(is_terminal=False).strip() == ""
    assert shown(is_terminal=True, is_shown=False).strip() == ""


def test_items_without_a_length() -> None:
    with Progress(1, is_shown=False) as progress:
        assert list(progress.each(iter("abc"))) == ["a", "b", "c"]
