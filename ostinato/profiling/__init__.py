"""Where the time of a call goes: measured kernel by kernel, shown as table, page and trace."""

from __future__ import annotations

from ostinato.profiling.measuring import KernelTime, Profile, measure

__all__ = ["KernelTime", "Profile", "measure"]
