"""Loops over the 64-bit words of memory, in LLVM assembly."""

from __future__ import annotations


def loop(
    name: str,
    parameters: str,
    body: str,
    sums: tuple[str, ...] = (),
    result: str = "void",
    end: str = "",
) -> str:
    """A function that runs `body` for each word `%i` of `%bytes` bytes, a multiple of eight.

    sums: names of i64 that begin with 0: `body` reads `%NAME` and defines `%NAME.next`, and `end`
    reads the last as `%NAME.last` to compute `%result`, unless the function returns nothing.
    """
    carried, last = (
        "".join(f"  %{sum}{mark} = phi i64 [ 0, %entry ], [ %{sum}.next, %loop ]\n" for sum in sums)
        for mark in ("", ".last")
    )
    returned = "void" if result == "void" else f"{result} %result"
    return f"""
define internal {result} @{name}({parameters}) nounwind {{
entry:
  %words = lshr i64 %bytes, 3
  %is.empty = icmp eq i64 %words, 0
  br i1 %is.empty, label %done, label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{carried}{body}  %next = add i64 %i, 1
  %again = icmp ult i64 %next, %words
  br i1 %again, label %loop, label %done
done:
{last}{end}  ret {returned}
}}
"""
