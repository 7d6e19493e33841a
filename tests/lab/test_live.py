"""What pages are told: deltas that join without gap or repeat, and the same out of the database for those who missed them."""

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from channels.layers import get_channel_layer
from django.utils import timezone

from lab.supervision.supervisor import ingest as ingest_module
from lab.supervision.supervisor.ingest import ingest_spool
from lab.teams.accounts.models import Team
from lab.training.runs import live, metrics, publisher
from lab.training.runs.models import Run, Status
from tests.lab.supervisor.spools import make_run, measured, rollout, started, steps, write


@pytest.fixture
def run(team: Team) -> Run:
    return make_run(team)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The messages the run's pages would get, as the JSON they would see."""
    messages: list[dict[str, Any]] = []

    def remember(group: str, message: dict[str, Any]) -> None:
        if group.startswith("run-"):
            messages.append(json.loads(json.dumps(message, allow_nan=False)))

    monkeypatch.setattr(live, "publish_message", remember)
    return messages


def joined(deltas: list[dict[str, Any]]) -> dict[str, Any]:
    whole: dict[str, Any] = {"axes": {"step": [], "time": [], "tokens": []}, "points": {}, "rollouts": 0}
    for delta in deltas:
        for name, values in delta["axes"].items():
            whole["axes"][name] += values
        for name, points in delta["points"].items():
            whole["points"].setdefault(name, []).extend(points)
        whole["rollouts"] += delta["rollouts"]["count"]
    return whole


def test_deltas_follow_each_other_without_gap_and_say_what_the_database_says(run: Run, told: list[dict[str, Any]]) -> None:
    write(run.folder, [started()])
    ingest_spool(run)
    assert [message["type"] for message in told] == ["reset"]
    write(run.folder, steps(1, 30))
    while ingest_spool(run, 3000):
        pass
    deltas = told[1:]
    assert len(deltas) > 5
    assert [delta["from"] for delta in deltas] == [told[0]["to"], *(delta["to"] for delta in deltas[:-1])]
    whole = joined(deltas)
    stored = metrics.read_metric_series(run.pk)
    assert whole["points"]["loss"] == [list(pair) for pair in zip(stored["loss"].steps.tolist(), stored["loss"].values.tolist(), strict=True)]
    assert whole["axes"]["step"] == list(range(1, 31))
    assert whole["axes"]["tokens"] == [100 * step for step in range(1, 31)]
    assert whole["rollouts"] == 240
    assert deltas[-1]["state"]["step"] == 30


@pytest.mark.feature(17)
def test_catching_up_from_any_cursor_gives_what_the_missed_deltas_gave(run: Run, told: list[dict[str, Any]]) -> None:
    write(run.folder, [started()])
    ingest_spool(run)
    write(run.folder, [*steps(1, 6), measured(6, values={"heldout/reward": 0.5}), rollout(6, 0, phase="heldout"), *steps(7, 12)])
    while ingest_spool(run, 1500):
        pass
    deltas = told[1:]
    for index, delta in enumerate(deltas):
        found = live.catch_up(run.pk, delta["from"])
        assert found is not None
        assert (found["type"], found["from"], found["to"]) == ("delta", delta["from"], run.ingested)
        assert joined([json.loads(json.dumps(found))]) == joined(deltas[index:])
    assert live.catch_up(run.pk, run.ingested) is None


def test_a_new_attempt_resets_the_page_live_and_later(run: Run, told: list[dict[str, Any]]) -> None:
    write(run.folder, [started(), *steps(1, 3)])
    ingest_spool(run)
    cursor = run.ingested
    write(run.folder, [started(2, from_step=1), *steps(2, 3, attempt=2)])
    ingest_spool(run)
    assert told[-1]["type"] == "reset"
    found = live.catch_up(run.pk, cursor)
    assert found is not None
    assert (found["type"], found["to"], found["state"]["attempt"]) == ("reset", run.ingested, 2)
    assert live.catch_up(run.pk, run.ingested) is None


@pytest.mark.parametrize("cursor", [-1, 10**12])
def test_a_cursor_from_nowhere_is_a_reset(run: Run, cursor: int) -> None:
    write(run.folder, [started()])
    ingest_spool(run)
    found = live.catch_up(run.pk, cursor)
    assert found is not None
    assert found["type"] == "reset"


def test_a_gap_too_long_to_send_is_a_reset(run: Run, told: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    write(run.folder, [started()])
    ingest_spool(run)
    cursor = run.ingested
    monkeypatch.setattr(live, "MAX_GAP_STEPS", 20)
    monkeypatch.setattr(live, "MAX_DELTA_POINTS", 50)
    write(run.folder, [measured(step) for step in range(1, 31)])
    ingest_spool(run)
    assert told[-1]["type"] == "reset"
    found = live.catch_up(run.pk, cursor)
    assert found is not None
    assert found["type"] == "reset"


def test_values_json_has_no_number_for_travel_by_name(run: Run, told: list[dict[str, Any]]) -> None:
    write(run.folder, [started()])
    ingest_spool(run)
    write(run.folder, [measured(1, values={}, nonfinite={"loss": "nan", "kl": "-inf", "reward": "inf"})])
    ingest_spool(run)
    assert told[-1]["points"] == {"loss": [[1, "nan"]], "kl": [[1, "-inf"]], "reward": [[1, "inf"]]}


def test_the_state_says_how_far_and_how_long(run: Run) -> None:
    run.status, run.step, run.total_steps, run.latest = Status.RUNNING, 50, 200, {"step_seconds": 0.5, "reward": 0.25}
    state = live.describe_run_state(run)
    assert (state["progress"], state["eta_seconds"], state["latest"]["reward"], state["latest"]["loss"]) == (0.25, 75, 0.25, None)
    assert state["can"] == {"stop": True, "kill": True, "resume": False}
    json.dumps(state, allow_nan=False)
    run.status = Status.STOPPED
    assert live.describe_run_state(run)["eta_seconds"] is None
    assert live.describe_run_state(run)["can"] == {"stop": False, "kill": False, "resume": True}


@pytest.mark.feature(86)
def test_a_run_is_stalled_after_two_silent_minutes_while_it_is_active(run: Run) -> None:
    run.progress_at = timezone.now() - timedelta(seconds=300)
    assert live.describe_run_state(run)["stalled_seconds"] is None
    run.status = Status.RUNNING
    assert live.describe_run_state(run)["stalled_seconds"] == 300
    run.progress_at = timezone.now() - timedelta(seconds=60)
    assert live.describe_run_state(run)["stalled_seconds"] is None


async def receive(channel: str, count: int) -> list[dict[str, Any]]:
    return [await asyncio.wait_for(get_channel_layer().receive(channel), 60) for _ in range(count)]


@pytest.mark.django_db(transaction=True)
def test_messages_arrive_in_order_through_a_real_redis(run: Run) -> None:
    async def listen() -> list[dict[str, Any]]:
        layer = get_channel_layer()
        channel = await layer.new_channel()
        await layer.group_add(live.run_group(run.pk), channel)
        thread = threading.Thread(target=publish)
        thread.start()
        found = await receive(channel, 20)
        thread.join()
        return found

    def publish() -> None:
        for offset in range(20):
            live.publish_delta(run, {"type": "delta", "from": offset, "to": offset + 1, "state": {}})

    # In a thread of its own: in one where Playwright's loop has run before (the browser tests) asyncio.run receives nothing.
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(asyncio.run, listen()).result()
    assert [message["from"] for message in found] == list(range(20))


def test_without_redis_publishing_neither_raises_nor_waits(run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    class Away:
        async def group_send(self, group: str, message: dict[str, Any]) -> None:
            await asyncio.sleep(0.01)
            raise ConnectionError("Redis is away")

    monkeypatch.setattr(publisher, "_publisher", None)
    monkeypatch.setattr(publisher, "get_channel_layer", Away)
    begun = time.monotonic()
    for _ in range(3 * publisher.PENDING):
        publisher.publish_message("run-1", {"type": "state"})
    assert time.monotonic() - begun < 1
    publisher.flush_messages(10)
    assert sum("not delivered" in record.message for record in caplog.records) == 1
    monkeypatch.setattr(publisher, "_publisher", None)


def test_the_team_hears_of_a_run_now_and_then_and_of_its_end_always(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[str] = []
    monkeypatch.setattr(live, "publish_message", lambda group, message: groups.append(group))
    monkeypatch.setattr(live, "TEAM_SECONDS", 60.0)  # longer than the slowest machine takes here
    write(run.folder, [started(), *steps(1, 20)])
    while ingest_spool(run, 2000):
        pass
    live.publish_state(run)
    team = live.team_group(run.team_id)
    assert 1 <= groups.count(team) <= 4 < groups.count(live.run_group(run.pk))
    assert groups[-1] == team


def test_a_failed_transaction_tells_nobody(run: Run, told: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(ingest_module, "record_saved", broken)
    write(run.folder, [started(), *steps(1, 2)])
    with pytest.raises(RuntimeError):
        ingest_spool(run)
    assert told == []
    assert Run.across_teams.get(pk=run.pk).ingested == 0
