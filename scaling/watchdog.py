"""Judges from what processes say of themselves whether one is gone, has stopped or hangs."""

import time
from collections.abc import Callable
from dataclasses import dataclass

RESUMES = "the same command goes on from the last checkpoints"
SILENCE_SECONDS = 60.0  # a process that lives is heard from every second or two
# What may take a while without a word: times the patience that a training step gets.
LONG = {"compile": 6, "save": 6, "restore": 6, "data": 144}


@dataclass(frozen=True)
class Life:
    """What a process says of itself."""

    beat: int = -1  # grows for as long as it lives
    moves: int = -1  # things begun so far; all processes begin the same things in the same order
    activity: str = "start"
    step: int = 0


@dataclass
class _Heard:
    life: Life
    beat_time: float
    moved_time: float


class Watchdog:
    """Follows the processes of one launch.

    Args:
      names: of the processes, in their order.
      process: which of them this one is.
      timeout: seconds in which something has to move.
      clock: seconds, from anywhere.
    """

    def __init__(
        self,
        names: list[str],
        process: int,
        timeout: float,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.names, self._process, self._timeout, self._clock = names, process, timeout, clock
        self._heard = [_Heard(Life(), clock(), clock()) for _ in names]

    def judge(self, lives: dict[int, Life], stopped: dict[int, tuple[str, int]]) -> tuple[str, int]:
        """(why this process must end, its exit code); the sentence is empty while all is well.

        Args:
          lives: what each process says now.
          stopped: why some have ended, and with which exit code.
        """
        for process, (reason, code) in stopped.items():
            if process != self._process:
                return f"{self.names[process]} has stopped: {reason}", code
        now = self._clock()
        for process, life in lives.items():
            heard = self._heard[process]
            if life.beat != heard.life.beat:
                heard.beat_time = now
            if life.moves != heard.life.moves:
                heard.moved_time = now
            heard.life = life
        return self._silent(now) or self._hung(now), 1

    def longest_silence(self) -> float:
        """Seconds since the quietest process was heard from."""
        return self._clock() - min(heard.beat_time for heard in self._heard)

    def _silent(self, now: float) -> str:
        limit = min(SILENCE_SECONDS, self._timeout)
        silent = [
            f"{name}, last at step {heard.life.step} ({heard.life.activity}),"
            for name, heard in zip(self.names, self._heard, strict=True)
            if now - heard.beat_time > limit
        ]
        if not silent:
            return ""
        return f"{' '.join(silent)} has not been heard from for {limit:g} s; {RESUMES}"

    def _hung(self, now: float) -> str:
        lives = [heard.life for heard in self._heard]
        if any(life.activity.startswith("waiting") for life in lives):
            return ""  # at a barrier, which has a time-out of its own
        for heard in self._heard:
            if now - heard.moved_time <= self._timeout * LONG.get(heard.life.activity, 1):
                return ""
        slow = min(range(len(lives)), key=lambda process: lives[process].moves)
        where = f"step {lives[slow].step} ({lives[slow].activity})"
        if len({life.moves for life in lives}) == 1:
            who = f"all {len(lives)} processes are at {where}"
        else:
            who = f"the slowest is {self.names[slow]}, at {where}"
        still = now - max(heard.moved_time for heard in self._heard)
        return f"nothing moved for {still:.0f} s: {who}; {RESUMES}"
