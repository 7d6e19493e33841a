"""When runs start and end, counted by hand: workers that are free or busy, chains, queues, and what is not known."""

from uuid import UUID

import pytest

from lab.watching.queue.schedule import UNLIKE, Desk, Forecast, WaitingRun, schedule_runs

GPU = frozenset({"gpu"})


def key(number: int) -> UUID:
    return UUID(int=number)


def waits(number: int, seconds: float | None, after: int | None = None, queue: str = "gpu") -> WaitingRun:
    return WaitingRun(key(number), number, queue, seconds, key(after) if after else None)


def times(found: dict[UUID, Forecast]) -> dict[int, tuple[float | None, float | None]]:
    return {one.int: (known.start, known.end) for one, known in found.items()}


@pytest.mark.feature(4)
def test_each_free_worker_takes_the_next_run_and_a_busy_one_when_its_run_ends() -> None:
    found = schedule_runs([waits(1, 60), waits(2, 100), waits(3, 10), waits(4, 5)], [Desk(GPU, 0), Desk(GPU, 30)], {})
    assert times(found) == {1: (0, 60), 2: (30, 130), 3: (60, 70), 4: (70, 75)}


def test_a_stage_starts_after_the_one_before_while_others_go_ahead() -> None:
    runs = [waits(1, 60), waits(2, 60, after=1), waits(3, 60, after=9), waits(4, 200)]
    found = schedule_runs(runs, [Desk(GPU, 0), Desk(GPU, 0)], {key(9): 100})
    assert times(found) == {1: (0, 60), 4: (0, 200), 2: (60, 120), 3: (120, 180)}


def test_a_worker_takes_only_runs_of_its_queues() -> None:
    found = schedule_runs([waits(1, 60, queue="big"), waits(2, 60)], [Desk(GPU, 0), Desk(frozenset({"gpu", "big"}), 500)], {})
    assert times(found) == {1: (500, 560), 2: (0, 60)}


@pytest.mark.feature(4)
def test_what_is_not_known_is_said_with_its_reason() -> None:
    runs = [waits(1, None), waits(2, 60, after=1), waits(3, 60), waits(4, 60, queue="big")]
    found = schedule_runs(runs, [Desk(GPU, 0), Desk(GPU, None)], {})
    assert {one.int: known.unknown for one, known in found.items()} == {
        1: UNLIKE,
        2: "unknown: #1 has no known end",
        3: "unknown: a run before it has no known end",
        4: "unknown: no worker for big",
    }
    assert found[key(1)] == Forecast(0, None, UNLIKE)
