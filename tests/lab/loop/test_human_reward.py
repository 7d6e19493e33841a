"""A trainer's question becomes an item, a person's ranking a line of answers; the real trainer takes it as its reward."""

from __future__ import annotations

import json
import threading
import time
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from lab.data.loop import human_reward
from lab.data.loop.models import Ask
from lab.labelling.labels.item_claims import claim_items
from lab.labelling.labels.judgements import submit_judgement
from lab.labelling.labels.models import Item, ItemState, Judgement, Kind, Preference, Purpose, Queue, QueueStatus
from lab.lib.refusals import Refusal
from lab.rollouts.trajectories.models import Prompt, Rollout
from lab.supervision.supervisor import prompts
from lab.supervision.supervisor.ingest import ingest_spool
from lab.supervision.supervisor.supervise import run_supervisor
from lab.teams.accounts.models import Role, Team, User
from lab.training.runs.models import Run, Status
from tests.conftest import make_member
from tests.hostile import PAYLOADS
from tests.lab.html_forms import error_of, filled, send
from tests.lab.refusal_checks import refused
from tests.lab.supervisor.spools import make_run, rollout, started, store, write
from trainers.contract.events import Asked, Message
from trainers.contract.spec import ANSWERS, parse_spec

COMPLETIONS = ["first", "second", "third"]
HUMAN = {"share": 1.0, "seconds": 90}


@pytest.fixture(autouse=True)
def no_remembered_prompts() -> None:
    prompts.forget_prompts()


@pytest.fixture
def ann(team: Team) -> User:
    return make_member("ann@example.org", team, Role.ANNOTATOR)


@pytest.fixture
def run(team: Team) -> Run:
    return make_run(team, spec={"recipe": "grpo", "human": HUMAN}, status=Status.RUNNING)


def asked(step: int = 1, group: int = 0, attempt: int = 1, seconds: float = 60, **fields: Any) -> Asked:
    values = {"prompt": [Message("user", f"What is {step} + {group}?")], "reference": str(step + group), "completions": COMPLETIONS, **fields}
    key = values.pop("key", f"{attempt}-{step}-{group}")
    return Asked(attempt=attempt, time=time.time(), key=key, step=step, group=group, deadline=time.time() + seconds, **values)


def rank(queue: Queue, user: User, *tiers: list[int]) -> Judgement:
    """The user's next item, ranked in stored places."""
    held = claim_items(queue, user, hold=1)[0]
    shown = [[held.order.index(place) for place in tier] for tier in tiers]
    return submit_judgement(queue, user, held.token, uuid.uuid4(), {"choice": "ranked", "tiers": shown}, 1.0)


def answers(run: Run) -> list[dict[str, Any]]:
    path = run.folder / ANSWERS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def queue_of(run: Run) -> Queue:
    found = human_reward.find_reward_queue(run)
    assert found is not None
    return found


def test_a_question_becomes_an_item_and_a_ranking_its_answer(run: Run, ann: User) -> None:
    store(run, started(), asked(group=0), asked(group=1))
    queue = queue_of(run)
    assert (queue.team, queue.purpose, queue.kind, queue.overlap, queue.lock_minutes) == (run.team, Purpose.REWARD, Kind.RANKING, 1, 2)
    assert [item.texts for item in queue.items.order_by("place")] == [COMPLETIONS, COMPLETIONS]
    assert human_reward.sync_reward_answers(run) == 0
    rank(queue, ann, [2], [0, 1])
    assert human_reward.sync_reward_answers(run) == 1
    assert answers(run) == [{"key": "1-1-0", "tiers": [[2], [0, 1]]}]
    first, second = Ask.objects.filter(run=run).order_by("group")
    assert first.answered_at is not None
    assert (first.rewards, second.answered_at) == ([[2], [0, 1]], None)
    assert human_reward.sync_reward_answers(run) == 0  # once


def test_the_prompt_is_that_of_the_rollouts_and_votes_become_preferences_between_them(run: Run, ann: User) -> None:
    store(run, started(), asked())
    queue = queue_of(run)
    rank(queue, ann, [1], [2], [0])
    human_reward.sync_reward_answers(run)
    store(run, *[rollout(1, 0, sample, completion=text) for sample, text in enumerate([*COMPLETIONS, "second"])])
    Run.across_teams.filter(pk=run.pk).update(step=1)
    run.refresh_from_db()
    human_reward.sync_reward_answers(run)
    item = queue.items.get()
    rows = {row.completion: row for row in Rollout.objects.filter(run=run).order_by("-sample")}
    assert (item.texts, item.rollouts) == (None, [rows[text].pk for text in COMPLETIONS])
    assert {row.prompt_id for row in rows.values()} == {item.prompt_id} == {Prompt.across_teams.get().pk}
    found = {(one.chosen, one.rejected) for one in Preference.objects.filter(item=item)}
    assert found == {(rows[better].pk, rows[worse].pk) for better, worse in [("second", "third"), ("second", "first"), ("third", "first")]}


def test_lines_are_stored_once_however_often_they_are_read(run: Run) -> None:
    write(run.folder, [started(), asked(), asked(), asked(group=1)])  # a trainer that asks the same twice
    while ingest_spool(run, limit=1):
        pass
    assert sorted(Ask.objects.filter(run=run).values_list("key", flat=True)) == ["1-1-0", "1-1-1"]
    assert Item.across_teams.count() == 2


def test_what_is_too_late_leaves_the_queue_and_is_not_sent(run: Run, ann: User) -> None:
    store(run, started(), asked(group=0), asked(group=1), asked(group=2, seconds=-5))
    queue = queue_of(run)
    assert queue.items.count() == 2  # nobody is asked what is over already
    held = claim_items(queue, ann, hold=1)[0]
    Ask.objects.filter(run=run).update(deadline=timezone.now() - timedelta(seconds=3))
    assert human_reward.sync_reward_answers(run) == 0
    assert set(queue.items.values_list("state", flat=True)) == {ItemState.DROPPED}
    assert answers(run) == []
    with refused(409, "expired"):
        submit_judgement(queue, ann, held.token, uuid.uuid4(), {"choice": "ranked", "tiers": [[0], [1], [2]]}, 1.0)


@pytest.mark.parametrize("status", [QueueStatus.PAUSED, QueueStatus.CLOSED])
def test_a_queue_that_is_not_open_keeps_no_step_waiting(run: Run, status: QueueStatus) -> None:
    store(run, started(), asked(step=1))
    Queue.across_teams.update(status=status)
    store(run, asked(step=2))
    assert human_reward.sync_reward_answers(run) == 1
    assert answers(run) == [{"key": "1-2-0", "tiers": None}]


def test_the_queue_closes_with_the_run_and_opens_when_it_goes_on(run: Run) -> None:
    store(run, started(), asked())
    human_reward.close_reward_queue(run)
    queue = queue_of(run)
    assert (queue.status, queue.items.get().state) == (QueueStatus.CLOSED, ItemState.DROPPED)
    store(run, started(attempt=2), asked(attempt=2))
    assert queue_of(run) == queue
    assert queue_of(run).status == QueueStatus.OPEN
    assert queue.items.filter(state=ItemState.OPEN).count() == 1


def test_an_answer_stands_on_a_line_of_its_own(run: Run, ann: User) -> None:
    path = run.folder / ANSWERS
    path.parent.mkdir(parents=True)
    path.write_text('{"key": "x", "ti')  # somebody's editor
    store(run, started(), asked())
    rank(queue_of(run), ann, [0, 1, 2])
    human_reward.sync_reward_answers(run)
    assert path.read_text().splitlines()[1] == '{"key": "1-1-0", "tiers": [[0, 1, 2]]}'


@pytest.mark.parametrize("broken", [{"completions": ["one"]}, {"completions": ["x"] * 27}, {"key": ""}, {"key": "k" * 65}])
def test_a_question_that_cannot_be_asked_is_a_warning(run: Run, broken: dict[str, Any]) -> None:
    write(run.folder, [started(), asked(**broken), asked(group=1)])
    batch = ingest_spool(run)
    assert batch is not None
    assert len(batch.broken) == 1
    assert Ask.objects.filter(run=run).count() == 1


def test_hostile_texts_are_asked_about_as_they_are(run: Run) -> None:
    from trainers.attempt.telemetry import to_storable_text

    texts = list(dict.fromkeys(to_storable_text(text) for text in PAYLOADS))[:26]
    store(run, started(), asked(completions=texts))
    assert queue_of(run).items.get().texts == texts


@pytest.mark.feature(101)
@pytest.mark.training
@pytest.mark.django_db(transaction=True)
def test_the_real_trainer_is_rewarded_by_a_person(team: Team, ann: User) -> None:
    """Two steps of GRPO whose every group a person ranks through the engine, longest answer first."""
    run = make_run(team)
    training = {"trainer": "grpo", "max_steps": 2, "per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 12}
    spec = {"recipe": "grpo", "policy": {"kind": "tiny", "cold_start": False}, "task": {"name": "mini_gsm"}, "training": training}
    run.spec = parse_spec({**spec, "evaluation": {"prompts": 0}, "human": HUMAN, "output": str(run.folder)}).model_dump(mode="json")
    run.save(update_fields=["spec"])
    thread = threading.Thread(target=in_background, args=(run,))
    thread.start()
    while thread.is_alive():
        if (queue := human_reward.find_reward_queue(run)) is not None and queue.status == QueueStatus.OPEN:
            rank_longest_first(queue, ann)
        time.sleep(0.05)
    run.refresh_from_db()
    assert (run.status, run.reason) == (Status.FINISHED, "")
    assert Ask.objects.filter(run=run).exclude(answered_at=None).count() == Ask.objects.filter(run=run).count() > 0
    groups: dict[tuple[int, int], list[Rollout]] = {}
    for row in Rollout.objects.filter(run=run, phase="train"):
        groups.setdefault((row.step, row.group), []).append(row)
    for rows in groups.values():
        for row in rows:
            others = [other for other in rows if other.pk != row.pk]
            won = [(len(row.completion) > len(other.completion)) + 0.5 * (len(row.completion) == len(other.completion)) for other in others]
            same = len({one.completion for one in rows}) == 1
            assert row.rewards["human"] == (None if same else pytest.approx(sum(won) / 3))
    queue = queue_of(run)
    assert queue.status == QueueStatus.CLOSED
    assert not queue.items.filter(texts__isnull=False).exists()  # every item knows its rollouts
    assert Preference.objects.filter(item__queue=queue).exists()


def rank_longest_first(queue: Queue, user: User) -> None:
    """Answers what waits. The run closes its queue when it ends, which may be between the look at the queue and the claim."""
    try:
        waiting = claim_items(queue, user, hold=4)
    except Refusal:
        queue.refresh_from_db()
        assert queue.status == QueueStatus.CLOSED
        return
    for held in waiting:
        lengths = [len(held.item.texts[place]) for place in held.order]
        tiers = [[place for place, own in enumerate(lengths) if own == length] for length in sorted(set(lengths), reverse=True)]
        submit_judgement(queue, user, held.token, uuid.uuid4(), {"choice": "ranked", "tiers": tiers}, 1.0)


def in_background(run: Run) -> None:
    try:
        run_supervisor(str(run.pk), "here:1")
    finally:
        connection.close()


# The launch form


def test_the_launch_form_asks_whether_people_are_asked(client: Client, owner: User) -> None:
    client.force_login(owner)
    assert send(client, "/launch/grpo/").status_code == 302
    assert Run.across_teams.get().spec["human"] is None
    values = {"human": "on", "human.share": "0.25", "human.seconds": "30", "human.fallback": "0.5"}
    assert send(client, "/launch/grpo/", **values).status_code == 302
    run = Run.across_teams.latest("number")
    assert run.spec["human"] == {"share": 0.25, "seconds": 30.0, "weight": 1.0, "fallback": 0.5, "compare": "ranking"}
    cloned = filled(client, f"/launch/grpo/?clone={run.pk}")
    assert (cloned["human"], cloned["human.share"], cloned["human.fallback"]) == ("on", "0.25", "0.5")
    assert "Human reward" in client.get(f"/runs/{run.pk}/config/").content.decode()


@pytest.mark.parametrize(("name", "value"), [("human.share", "0"), ("human.seconds", ""), ("human.fallback", "2")])
def test_a_setting_that_cannot_be_used_stands_at_its_input(client: Client, owner: User, name: str, value: str) -> None:
    client.force_login(owner)
    answer = send(client, "/launch/grpo/", human="on", **{name: value})
    assert answer.status_code == 422
    assert error_of(answer.content.decode(), name)
    assert not Run.across_teams.exists()


def test_a_recipe_without_groups_asks_nobody(client: Client, owner: User) -> None:
    client.force_login(owner)
    assert "human" not in client.get("/launch/sft/").content.decode()
