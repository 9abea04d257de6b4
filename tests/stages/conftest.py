"""Models written by hand in LLVM assembly, as fixtures."""

from tests.by_hand import artifacts, cache_dir, compiler, session

__all__ = ["artifacts", "cache_dir", "compiler", "session"]
