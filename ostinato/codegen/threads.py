"""LLVM assembly by which the threads of one compiled function meet: generic over all functions.

A module of several threads has its own team: thread 0 is whoever calls `entry`, the others sleep
in `team_work`. A call publishes a job. Those who sign in for it in time, about a microsecond, take
part: all run the function `share` with their number, with how many they are, and with what its
safepoints need (`ostinato.codegen.safepoints`): thread 0 asks, the others are told. Late workers,
which had to be woken or whose processor is busy, are skipped. The text of the functions is in
`ostinato.codegen.team`. Exported are

    `void team_open()`              comes before everything else
    `ptr team_work(ptr number)`     what a thread with this number, from 1 on, runs until the end
    `void team_lead(i64 count)`     from now on calls use this many threads; 1 when it was loaded
    `i64 team_jobs()`               how many calls have been shared
    `void team_end()`               waits for a running call, then makes `team_work` return

A call runs on one thread while another call has the team. Sleepers are waited for by calls that
gain more than waking takes, which are `patient`. Other calls wake them for the calls to come, if
the one before ended less than its own time ago, and run on one thread.

After a call that went wrong some run on one thread at once, without looking at the others: 1, then
3, 7, .. as long as it goes wrong. That is when thread 0 spent more than a third of the call waiting
for others, because the machine is busy with something else, and when those who were woken did not
come. In the first case they run on one thread for some time, too, in proportion to what was lost.

Waiting spins for some microseconds first. Then workers without a job sleep on a condition variable,
and threads inside of a job yield the processor.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ostinato.codegen.processor import processor
from ostinato.codegen.safepoints import STOPPED, open_poll
from ostinato.codegen.team.calls import CALLS
from ostinato.codegen.team.meeting import MEETING
from ostinato.codegen.team.state import GLOBALS
from ostinato.codegen.team.systems import system
from ostinato.codegen.team.workers import WORKERS

if TYPE_CHECKING:
    from ostinato.codegen.target import Target

EXPORTS = ("team_open", "team_work", "team_lead", "team_jobs", "team_end")
# Figures of the machine and its system, found by `benchmarks.bench_threads` on idle and on busy
# machines: they never change results.

# Calls run on one thread for this many times the time that was lost waiting: so a sixteenth is lost
# at most, however busy the machine is.
LOSSES = 16

# Most threads of a call: a bit for each in a word.
MOST = 63

# Rounds of spinning, of some 30 ns each: for the next job between calls, for it during a call that
# this thread came too late for, and for the other threads in a job.
_JOB_SPINS = 3000
_BUSY_SPINS = 100_000
_SPINS = 300
# Rounds during which others may sign in, those who were woken included; beyond `_SPINS` they yield.
SIGN_SPINS = 60
WAKE_SPINS = 1000
# Ticks of waiting for others after which thread 0 asks whether to stop.
_ASK_TICKS = 1 << 20
# Calls that may pass until threads that were woken have come.
_PATIENCE = 8
# Calls that run on one thread before the others are tried again, at most.
MOST_ALONE = 255


def assembly(target: Target) -> str:
    """The functions that a module needs whose function `share` runs on several threads."""
    functions = MEETING + CALLS + WORKERS
    functions = functions.replace("JOIN_POLL\n", open_poll("@team_stop"))
    figures = {
        "STOPPED": STOPPED,
        "SPINS": _SPINS,
        "JOB_SPINS": _JOB_SPINS,
        "BUSY_SPINS": _BUSY_SPINS,
        "SIGN_SPINS": SIGN_SPINS,
        "WAKE_SPINS": WAKE_SPINS,
        "ASK_TICKS": _ASK_TICKS,
        "PATIENCE": _PATIENCE,
        "MOST_ALONE": MOST_ALONE,
        "LOSSES": LOSSES,
    }
    functions = re.sub(rf"\b({'|'.join(figures)})\b", lambda m: str(figures[m[1]]), functions)
    machine = processor(target.architecture).assembly + system(target.system).assembly
    return GLOBALS + machine + functions
