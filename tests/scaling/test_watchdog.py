"""A process that is gone, has stopped or hangs is named; one that works is left alone."""

import pytest

from scaling.watchdog import RESUMES, Life, Watchdog

NAMES = ["process 0 of 2 (a)", "process 1 of 2 (b)"]
WELL = ("", 1)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def watchdog(clock):
    return Watchdog(NAMES, 0, 100.0, clock)


def two(beat, *lives):
    """What two processes say that live, given (moves, activity, step) of each."""
    return {i: Life(beat, *life) for i, life in enumerate(lives)}


def test_work_is_left_alone(watchdog, clock):
    for beat in range(500):
        clock.now += 2
        life = (beat // 25, "train", beat // 25)
        assert watchdog.judge(two(beat, life, life), {}) == WELL


def test_the_slowest_of_those_that_hang_is_named(watchdog, clock):
    for beat in range(51):
        assert watchdog.judge(two(beat, (9, "train", 9), (8, "train", 8)), {}) == WELL
        clock.now += 2
    assert watchdog.judge(two(99, (9, "train", 9), (8, "train", 8)), {}) == (
        f"nothing moved for 102 s: the slowest is {NAMES[1]}, at step 8 (train); {RESUMES}",
        1,
    )
    assert "all 2 processes are at step 8 (train)" in hang(clock, (8, "train", 8), (8, "train", 8))


def hang(clock, *lives, seconds=102):
    watchdog = Watchdog(NAMES, 0, 100.0, clock)
    watchdog.judge(two(0, *lives), {})
    for beat in range(1, seconds):
        clock.now += 1
        reason, _ = watchdog.judge(two(beat, *lives), {})
    return reason


@pytest.mark.parametrize("activity", ["compile", "save", "restore"])
def test_compiling_and_saving_may_take_longer(clock, activity):
    lives = (9, "train", 9), (8, activity, 8)
    assert hang(clock, *lives, seconds=500) == ""
    assert f"the slowest is {NAMES[1]}, at step 8 ({activity})" in hang(clock, *lives, seconds=602)


def test_a_barrier_has_its_own_time_out(clock):
    assert hang(clock, (9, "waiting for x", 9), (8, "train", 8), seconds=2000) == ""


def test_a_process_that_is_not_heard_from_is_named(watchdog, clock):
    for beat in range(31):
        reason = watchdog.judge({0: Life(beat, beat), 1: Life(5, 5, "train", 3)}, {})
        assert reason == WELL
        clock.now += 2
    assert watchdog.judge({0: Life(99, 99)}, {}) == (
        f"{NAMES[1]}, last at step 3 (train), has not been heard from for 60 s; {RESUMES}",
        1,
    )


def test_why_another_has_stopped_is_passed_on(watchdog):
    assert watchdog.judge({}, {0: ("mine", 1)}) == WELL
    assert watchdog.judge({}, {1: ("interrupted", 130)}) == (
        f"{NAMES[1]} has stopped: interrupted",
        130,
    )
