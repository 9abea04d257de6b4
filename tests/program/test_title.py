from __future__ import annotations

from ostinato.program.title import title


def test_a_kernel_is_called_by_the_node_that_makes_its_value() -> None:
    assert [title(nodes) for nodes in ([], ["a"], ["a", "b/c"], ["a", "b", "c"])] == [
        "",
        "a",
        "b/c and 1 more",
        "c and 2 more",
    ]
