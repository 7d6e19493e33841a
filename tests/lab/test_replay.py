"""What-if questions: asked in a form, answered by a process of their own, read beside what training stored; of one team only."""

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.conf import settings
from django.test import Client
from django.utils import timezone

from lab.lib.processes import ManagedProcess, wait_for
from lab.rollouts.replay import chores
from lab.rollouts.replay.answers import answer_question, compute_effective_advantages, find_sign_flips, summarize_replayed_members
from lab.rollouts.replay.batch_span import compute_batch_steps
from lab.rollouts.replay.models import LOST_AFTER, Replay, ReplayStatus
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run
from lab.training.workers.models import ANALYSIS, Worker
from tests.hostile import PAYLOADS, stored
from tests.lab.api.conftest import client_of
from tests.lab.html_forms import error_of, form_values
from tests.lab.supervisor.spools import make_run, rollout, started, store
from trainers.contract.arrays import pack_array, pack_ids
from trainers.contract.events import Message
from trainers.contract.spec import parse_spec

GROUP = 4
REWARDS = [1.0, 0.0, 0.0, 1.0]
CENTRED = [0.5, -0.5, -0.5, 0.5]  # what dr-grpo makes of them


def spec(**changes: Any) -> dict[str, Any]:
    training = {"trainer": "grpo", "per_device_train_batch_size": 8, "num_generations": GROUP, "max_steps": 10, "prompts": 8}
    data = {"task": {"name": "mini_gsm"}, "training": training, "base": {"name": "dr-grpo"}, "recipe": "grpo", "output": "/nowhere", **changes}
    return parse_spec(data).model_dump(mode="json")


def events(step: int, texts: list[str] | None = None, **fields: Any) -> list[Any]:
    """A step of two groups, as dr-grpo stores it; the second group has no variance."""
    made = []
    for group in range(2):
        for sample in range(GROUP):
            right = REWARDS[sample] if group == 0 else 1.0
            text = stored(texts[sample % len(texts)]) if texts else "ab<answer>7</answer>"
            own = (
                {"completion": text, "lengths": pack_array([min(len(text), 60_000), *[0] * 3], "H")}
                if texts
                else {"completion": text, "lengths": pack_array([1, 1, 1, 17], "H")}
            )
            given = {"correct": right, "format": 1.0, "working": 0.0}
            advantage = CENTRED[sample] if group == 0 else 0.0
            made.append(rollout(step, group, sample, rewards=given, reward=right, advantage=advantage, ids=pack_ids([1, 2, 3, 4]), **own, **fields))
    return made


@pytest.fixture
def run(team: Team) -> Run:
    made = make_run(team, spec=spec())
    store(made, started(), *events(1), *events(2))
    return made


def url(run: Run, query: str = "") -> str:
    return f"/runs/{run.pk}/what-if/{query}"


def form(client: Client, run: Run, query: str = "", **changes: str) -> dict[str, str]:
    response = client.get(url(run, query))
    assert response.status_code == 200
    return {**form_values(response.content.decode(), "data-ask"), **changes}


def ask(client: Client, run: Run, query: str = "", **changes: str) -> Replay:
    response = client.post(url(run), form(client, run, query, **changes))
    assert response.status_code == 302, response.content.decode()
    return Replay.across_teams.get(pk=response.headers["Location"].split("/")[2])


def answered(client: Client, run: Run, query: str = "", **changes: str) -> Replay:
    asked = ask(client, run, query, **changes)
    answer_question(str(asked.pk))
    asked.refresh_from_db()
    return asked


def page(client: Client, replay: Replay, query: str = "") -> str:
    response = client.get(f"/what-if/{replay.pk}/{query}")
    assert response.status_code == 200
    return response.content.decode()


def test_the_form_starts_with_the_runs_own_recipe_and_what_the_address_says(as_owner: Client, run: Run) -> None:
    values = form(as_owner, run, "?step=1&group=1&add=rs-grpo")
    assert (values["step"], values["group"], values["stages.0.base"], values["stages.0.methods"].split()) == ("1", "1", "dr-grpo", ["rs-grpo"])
    assert (values["task.mini_gsm.rewards.correct"], values["task.mini_gsm.rewards.working"]) == ("1", "0")
    shown = as_owner.get(url(run)).content.decode()
    assert "The whole step (2 groups)" in shown
    assert "(zero variance)" in shown
    assert form(as_owner, run)["step"] == "2"  # the newest
    part = as_owner.get(url(run, "?part=groups&step=1")).content.decode()
    assert "<form" not in part
    assert "1: 4 rollouts" in part


def test_the_runs_own_recipe_changes_nothing(as_owner: Client, owner: User, run: Run) -> None:
    replay = answered(as_owner, run, "?step=1")
    assert (replay.status, replay.error, replay.user, replay.step, replay.group) == (ReplayStatus.FINISHED, "", owner, 1, None)
    assert replay.result is not None
    found = replay.result["summary"]
    assert (found["members"], found["tokens"], found["flipped_tokens"], found["flipped_members"]) == (8, 32, 0, 0)
    assert found["correlation"] == pytest.approx(1.0)
    assert found["change"] == pytest.approx(0.0, abs=1e-6)
    shown = page(as_owner, replay)
    assert shown.count("data-member=") == 8
    assert "push every token equally" in shown
    assert "<bdi>base</bdi> +0.5" in shown


@pytest.mark.feature(94)
def test_other_reward_weights_turn_the_signs_and_every_turned_token_is_marked(as_owner: Client, run: Run) -> None:
    replay = answered(as_owner, run, "?step=1&group=0", **{"task.mini_gsm.rewards.correct": "-1"})
    assert replay.weights == {"correct": -1.0}
    assert replay.result is not None
    found = replay.result["summary"]
    assert (found["members"], found["flipped_members"], found["flipped_tokens"], found["change"]) == (4, 4, 16, pytest.approx(1.0))
    assert found["correlation"] == pytest.approx(-1.0)
    shown = page(as_owner, replay)
    assert "+0.5</strong>" in shown
    assert "\u22120.5</strong>" in shown
    ids = [one["id"] for one in replay.result["members"]]
    tokens = as_owner.get(f"/what-if/{replay.pk}/tokens/?ids={ids[0]},x,99999999999999999999,{2**62}").json()["rollouts"]
    (one,) = tokens
    assert one["flips"] == [1, 1, 1, 1]
    assert one["before"] == [-value for value in one["after"]]
    assert dict(one["flipped"]) == {"a": 1, "b": 1, "<": 1, "answer>7</answer>": 1}
    assert "trained with" in shown
    assert "correct</bdi> \u00d7 -1" in shown


def test_lists_keep_their_state_in_the_address(as_owner: Client, run: Run) -> None:
    replay = answered(as_owner, run, "?step=1", **{"task.mini_gsm.rewards.correct": "-1"})
    assert page(as_owner, replay, "?flipped=1").count("data-member=") == 4
    assert page(as_owner, replay, "?sort=place&page=7&what=ever").count("data-member=") == 8
    order = [part.split('"')[0] for part in page(as_owner, replay, "?sort=replayed").split('data-member="')[1:]]
    best = Rollout.across_teams.get(pk=order[0])
    assert best.reward == 0.0


def test_a_method_that_stored_rollouts_are_not_enough_for_says_so_and_can_be_asked_again(as_owner: Client, run: Run) -> None:
    replay = answered(as_owner, run, "?step=1&add=ce-po")
    assert replay.status == ReplayStatus.FAILED
    shown = page(as_owner, replay)
    assert "ce-po" in shown
    assert "cannot be replayed on stored rollouts: it needs" in shown
    assert "Traceback" not in shown
    again = as_owner.post(f"/what-if/{replay.pk}/again/")
    assert again.headers["Location"] == f"/what-if/{replay.pk}/"
    replay.refresh_from_db()
    assert replay.status == ReplayStatus.QUEUED
    changed = form(as_owner, run, f"?from={replay.pk}")
    assert (changed["step"], changed["stages.0.methods"].split()) == ("1", ["ce-po"])


@pytest.mark.feature(80)
def test_a_program_asks_and_reads_the_answer(team: Team, owner: User, stranger: User, run: Run) -> None:
    api, body = client_of(team, owner), {"step": 1, "weights": {"correct": -1.0}}
    made = api.send(f"runs/{run.pk}/what-if", body)
    assert (made.status_code, made.json()["status"], made.json()["summary"], made.json()["base"]["name"]) == (201, "queued", None, "dr-grpo")
    path = f"what-if/{made.json()['id']}"
    answer_question(made.json()["id"])
    answer = api.ask(path).json()
    assert (answer["status"], answer["summary"]["members"], len(answer["members"])) == ("finished", 2 * GROUP, 2 * GROUP)
    assert answer["summary"]["flipped_members"] == sum(member["sign_flipped"] for member in answer["members"]) > 0
    assert [member["before"] for member in answer["members"]] == pytest.approx([-member["after"] for member in answer["members"]], abs=1e-5)
    wrong = {"step": 99, "weights": {"nothing": 1.0}, "methods": [{"name": "no-such-method"}]}
    fields = {one["field"] for one in api.send(f"runs/{run.pk}/what-if", wrong).json()["errors"]}
    assert {"step", "weights.nothing"} < fields
    assert any(field.startswith("methods") for field in fields)
    assert [one["field"] for one in api.send(f"runs/{run.pk}/what-if", {"step": 1, "group": 9}).json()["errors"]] == ["group"]
    theirs = client_of(stranger.memberships.get().team, stranger)
    assert theirs.ask(path).status_code == theirs.send(f"runs/{run.pk}/what-if", body).status_code == 404


def test_the_form_says_of_which_methods_nothing_is_replayed(as_owner: Client, run: Run) -> None:
    assert "acts only inside the loss" in as_owner.get(url(run, "?add=siren")).content.decode()
    assert "only inside the loss" not in as_owner.get(url(run, "?add=rs-grpo")).content.decode()


@pytest.mark.parametrize(
    ("changes", "place", "words"),
    [
        ({"step": "7"}, "step", "the nearest steps are 2"),
        ({"step": "99999999999999"}, "step", "no training rollouts"),
        ({"step": "x"}, "step", "no training rollouts"),
        ({"group": "5"}, "group", "no such group"),
        ({"group": str(2**40)}, "group", "no such group"),
    ],
)
def test_what_cannot_be_asked_is_said_at_its_input_and_nothing_is_lost(
    as_owner: Client, run: Run, changes: dict[str, str], place: str, words: str
) -> None:
    sent = form(as_owner, run, "?step=1&add=rs-grpo", **{"stages.0.method.rs-grpo.risk": "3"}, **changes)
    response = as_owner.post(url(run), sent)
    assert response.status_code == 422
    shown = response.content.decode()
    assert words in shown.split(f'id="error-{place}">')[1].split("</p>")[0]
    assert form_values(shown, "data-ask")["stages.0.method.rs-grpo.risk"] == "3"
    assert not Replay.across_teams.exists()


@pytest.mark.parametrize(
    ("query", "changes", "place", "words"),
    [
        ("?add=rs-grpo", {"stages.0.method.rs-grpo.risk": "-1"}, "stages.0.method.rs-grpo.risk", "greater than or equal to 0"),
        ("?add=rs-grpo", {"stages.0.add": "rloo"}, "stages.0.add", "press Add"),
        ("", {"task.mini_gsm.rewards.correct": "much"}, "task.mini_gsm.rewards.correct", "Enter a number"),
        ("?add=mrpo", {}, "stages.0.method.mrpo", "hidden states"),
        ("?add=rs-grpo&add=c2gspg", {}, "stages.0.method.c2gspg", "only one method can"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused_before_anything_runs(
    as_owner: Client, run: Run, query: str, changes: dict[str, str], place: str, words: str
) -> None:
    response = as_owner.post(url(run), form(as_owner, run, query, **changes))
    assert response.status_code == 422
    text = error_of(response.content.decode(), place)
    assert words in text or words.replace("greater than or equal to 0", "at least 0") in text, text
    assert not Replay.across_teams.exists()


def test_the_buttons_of_the_method_section_work_without_scripts(as_owner: Client, run: Run) -> None:
    added = as_owner.post(url(run), form(as_owner, run, act="0:add", **{"stages.0.add": "rs-grpo"})).content.decode()
    values = form_values(added, "data-ask")
    assert values["stages.0.methods"].split() == ["rs-grpo"]
    removed = as_owner.post(url(run), {**values, "act": "0:remove:rs-grpo"}).content.decode()
    assert form_values(removed, "data-ask")["stages.0.methods"].split() == []
    assert as_owner.post(url(run), {**values, "act": "0:burn"}).status_code == 404
    composed = as_owner.post("/compose/", {**values, "act": "0:remove:rs-grpo"})  # what a browser with scripts asks
    assert composed.status_code == 200


def test_a_form_sent_twice_asks_once(as_owner: Client, run: Run) -> None:
    sent = form(as_owner, run)
    first, second = as_owner.post(url(run), sent), as_owner.post(url(run), sent)
    assert first.headers["Location"] == second.headers["Location"]
    assert Replay.across_teams.count() == 1


def test_everything_is_the_teams_own(as_owner: Client, as_stranger: Client, run: Run) -> None:
    replay = ask(as_owner, run)
    for path in (url(run), f"/what-if/{replay.pk}/", f"/what-if/{replay.pk}/?part=state", f"/what-if/{replay.pk}/tokens/?ids=1"):
        assert as_stranger.get(path).status_code == 404, path
    assert as_stranger.post(url(run), {"step": "1"}).status_code == 404
    assert as_stranger.post(f"/what-if/{replay.pk}/again/").status_code == 404
    assert as_owner.get(f"/what-if/{uuid.uuid4()}/").status_code == 404
    assert as_owner.get(f"/what-if/{replay.pk}/tokens/").status_code == 404  # no answer yet
    assert as_owner.get(f"/what-if/{replay.pk}/again/").status_code == 405
    assert Client().get(f"/what-if/{replay.pk}/").status_code == 302


def test_a_question_of_another_run_or_team_is_not_a_start(as_owner: Client, run: Run, team: Team) -> None:
    other = make_run(team, spec=spec())
    store(other, started(), *events(3))
    replay = Replay.objects.create(team=team, run=other, step=3, base={"name": "grpo", "config": {}})
    assert form(as_owner, run, f"?from={replay.pk}")["stages.0.base"] == "dr-grpo"
    assert form(as_owner, run, "?from=nonsense")["stages.0.base"] == "dr-grpo"


def test_runs_without_advantages_or_rollouts_say_why_and_what_to_do(as_owner: Client, team: Team) -> None:
    dpo = make_run(team, trainer="dpo", spec={"training": {"trainer": "dpo"}})
    assert "no advantages" in as_owner.get(url(dpo)).content.decode()
    assert as_owner.post(url(dpo), {"step": "1"}).status_code == 200
    empty = make_run(team, spec=spec())
    assert "No rollouts yet" in as_owner.get(url(empty)).content.decode()


def test_a_worker_that_is_gone_does_not_leave_a_question_running_for_ever(as_owner: Client, run: Run) -> None:
    replay = ask(as_owner, run)
    assert replay.claim()
    assert not replay.claim()
    assert "Computing" in page(as_owner, replay)
    Replay.across_teams.filter(pk=replay.pk).update(started_at=timezone.now() - LOST_AFTER - timedelta(seconds=1))
    shown = page(as_owner, replay)
    assert "was lost" in shown
    assert "Try again" in shown
    assert replay.retry()
    assert replay.claim()  # what came late finds it claimed by another
    assert replay.finish({"members": []})
    assert not replay.fail("too late")


def test_an_answer_of_another_version_is_asked_again_not_read(as_owner: Client, run: Run) -> None:
    replay = ask(as_owner, run)
    assert replay.claim()
    assert replay.finish({"format": 0, "members": []})
    assert "Run again" in page(as_owner, replay)
    assert as_owner.get(f"/what-if/{replay.pk}/tokens/?ids=1").status_code == 404


def test_waiting_says_what_is_missing_and_reloads_the_page_at_the_end(as_owner: Client, run: Run) -> None:
    replay = ask(as_owner, run)
    assert "manage.py worker --queues analysis" in page(as_owner, replay)
    Worker.objects.create(name="w", host="h", pid=1, queues=[ANALYSIS])
    shown = page(as_owner, replay, "?part=state")
    assert "manage.py worker" not in shown
    assert "Waiting for a worker" in shown
    Replay.across_teams.filter(pk=replay.pk).update(status=ReplayStatus.FAILED, error="x")
    assert as_owner.get(f"/what-if/{replay.pk}/?part=state").headers["HX-Refresh"] == "true"


def test_a_worker_for_analysis_is_not_one_that_trains(as_owner: Client) -> None:
    Worker.objects.create(name="w", host="h", pid=1, queues=[ANALYSIS])
    shown = as_owner.get("/workers/").content.decode()
    assert "No training worker is online" in shown
    assert "what-if questions" in shown
    Worker.objects.create(name="both", host="h", pid=2, queues=[ANALYSIS, "gpu"])
    assert "No training worker is online" not in as_owner.get("/workers/").content.decode()


def test_model_text_stays_text(as_owner: Client, team: Team) -> None:
    payloads = [text for text in PAYLOADS if "<" in text][:GROUP]
    run = make_run(team, spec=spec(), name=payloads[0])
    written = events(1, payloads, prompt=[Message("user", payloads[1])], reference="1")
    store(run, started(), *written)
    replay = answered(as_owner, run, "?step=1&group=0", **{"task.mini_gsm.rewards.correct": "-1"})
    assert replay.status == ReplayStatus.FINISHED, replay.error
    shown = page(as_owner, replay)
    for text in payloads:
        assert text not in shown
    assert as_owner.get(f"/what-if/{replay.pk}/tokens/").headers["Content-Type"] == "application/json"


def test_a_replayed_step_of_an_earlier_attempt_is_not_asked_about(as_owner: Client, team: Team) -> None:
    run = make_run(team, spec=spec())
    store(run, started(), *events(1), *events(2), started(2, from_step=1), *(event for event in events(2, attempt=2)))
    replay = answered(as_owner, run, "?step=2")
    assert replay.result is not None
    assert {Rollout.across_teams.get(pk=one["id"]).attempt for one in replay.result["members"]} == {2}


@pytest.mark.parametrize(
    ("training", "step", "expected"),
    [
        ({"gradient_accumulation_steps": 1}, 5, (5, 5)),
        ({"gradient_accumulation_steps": 4, "steps_per_generation": 2}, 5, (5, 5)),
        ({"gradient_accumulation_steps": 1, "steps_per_generation": 2}, 1, (1, 2)),
        ({"gradient_accumulation_steps": 1, "steps_per_generation": 2}, 2, (1, 2)),
        ({"gradient_accumulation_steps": 1, "steps_per_generation": 2}, 3, (3, 4)),
        ({"gradient_accumulation_steps": 1, "steps_per_generation": 2, "num_iterations": 2}, 6, (5, 6)),
        ({"gradient_accumulation_steps": 2, "steps_per_generation": 4}, 4, (3, 4)),
    ],
)
def test_the_steps_of_a_generation_batch(training: dict[str, Any], step: int, expected: tuple[int, int]) -> None:
    assert compute_batch_steps(training, step) == expected


def test_effective_advantages_and_flips() -> None:
    before = compute_effective_advantages(-0.5, b"", pack_array([1.0, 0.0, 2.0], "e"), 3)
    after = compute_effective_advantages(9.0, pack_array([0.5, -1.0, -1.0], "e"), b"", 3)
    assert before.tolist() == [-0.5, 0.0, -1.0]
    assert after.tolist() == [0.5, -1.0, -1.0]
    assert find_sign_flips(before, after).tolist() == [True, False, False]  # what had no sign has not lost one
    one = {"before": 0.0, "after": 1.0, "sign_flipped": False, "tokens": 0, "flipped": 0, "change": 0.0}
    assert summarize_replayed_members([one, one])["correlation"] is None


def waiting_messages() -> int:
    return int(redis.Redis.from_url(settings.REDIS_URL).llen(ANALYSIS))  # type: ignore[arg-type]


def test_a_question_whose_message_is_lost_is_sent_again(as_owner: Client, run: Run) -> None:
    redis.Redis.from_url(settings.REDIS_URL).delete(ANALYSIS)
    replay = ask(as_owner, run)
    chores.sweep_replays()
    assert waiting_messages() == 0  # its own message may still come
    Replay.across_teams.filter(pk=replay.pk).update(created_at=timezone.now() - timedelta(minutes=1))
    chores.sweep_replays()
    chores.sweep_replays()
    assert waiting_messages() == 1
    redis.Redis.from_url(settings.REDIS_URL).delete(ANALYSIS)


def test_a_worker_for_analysis_answers(start_process: Callable[..., ManagedProcess], team: Team, owner: User) -> None:
    run = make_run(team, spec=spec())
    store(run, started(), *events(1))
    client = Client()
    client.force_login(owner)
    worker = start_process("analysis", "manage.py", "worker", "--queues", ANALYSIS, CUDA_VISIBLE_DEVICES="")
    replay = ask(client, run, "?step=1")

    def done() -> bool:
        replay.refresh_from_db()
        return not replay.is_open

    assert wait_for(done, 60), worker.log.read_text()
    assert replay.status == ReplayStatus.FINISHED, replay.error
