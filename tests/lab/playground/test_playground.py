"""The playground with the real command, a real policy and real files: what is sampled is repeatable, readable token by token, and can be labelled."""

import shutil
import threading
import uuid
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from lab.labelling.labels.models import Kind, Queue
from lab.lib.kept_process import KeptProcess
from lab.lib.refusals import Refusal
from lab.models.playground import chores, display, sampling, stored_samples
from lab.models.playground.models import Sample, Sampling, SamplingStatus, Side
from lab.models.playground.requests import AskForm
from lab.rollouts.trajectories.models import Rollout
from lab.supervision.supervisor.ingest import ingest_spool
from lab.teams.accounts.models import Role, Team, User
from lab.training.runs.models import Checkpoint, Run, Status
from tests.conftest import make_member
from tests.lab.api.conftest import client_of
from tests.lab.supervisor.spools import assert_database_equals_spool, make_run, started, steps, write
from trainers.contract import arrays
from trainers.policies import tiny

ASKED = {"prompt": "What is 3 + 4?", "system": "", "count": "2", "temperature": "1", "top_p": "0.9", "max_tokens": "12", "seed": "7"}


@pytest.fixture
def run(team: Team) -> Run:
    made = make_run(team, status=Status.FINISHED)
    write(made.folder, [started(), *steps(1, 2)])
    while ingest_spool(made):
        pass
    return made


def checkpoint(run: Run, step: int, final: bool = False) -> Checkpoint:
    path = "final" if final else f"checkpoints/checkpoint-{step}"
    shutil.copytree(tiny.ensure_untrained_policy(), run.folder / path)
    return Checkpoint.objects.create(run=run, attempt=1, step=step, path=path, bytes=1, final=final, created_at=timezone.now())


@pytest.fixture
def sides(run: Run) -> list[Checkpoint]:
    return [checkpoint(run, 1), checkpoint(run, 2, final=True)]


def asked(team: Team, user: User, *chosen: Checkpoint, **fields: str) -> Sampling:
    names = ("first", "second")
    form = AskForm(team, {**ASKED, **dict(zip(names, [str(one.pk) for one in chosen], strict=False)), **fields})
    assert form.is_valid(), form.errors
    return form.ask(user)


def sampled(team: Team, user: User, *chosen: Checkpoint, **fields: str) -> Sampling:
    made = asked(team, user, *chosen, **fields)
    sampling.run_sampling(str(made.pk))
    made.refresh_from_db()
    return made


def texts(made: Sampling) -> list[list[str]]:
    return [[one.text for one in side.samples.all()] for side in made.sides.all()]


@pytest.mark.feature(74)
def test_both_sides_write_and_the_same_seed_writes_the_same_again(
    team: Team, owner: User, sides: list[Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int] = []
    take = sampling.idle_sampler.take

    def note_the_process() -> KeptProcess:
        process = take()
        used.append(process.process.pid)
        return process

    monkeypatch.setattr(sampling.idle_sampler, "take", note_the_process)
    made = sampled(team, owner, *sides)
    assert len(used) == 1  # the second side does not wait for a process of its own
    assert (made.status, made.error) == (SamplingStatus.FINISHED, "")
    first, second = texts(made)
    assert len(first) == len(second) == 2
    assert first == second, "two checkpoints with the same weights and the same seed"
    assert first[0] != first[1]
    assert texts(sampled(team, owner, sides[0])) == [first]
    assert used == used[:1] * 2  # nor does who samples again within two minutes
    for one in Sample.objects.filter(side__sampling=made):
        entropies, logprobs = arrays.unpack_array(bytes(one.entropies)), arrays.unpack_array(bytes(one.logprobs))
        assert len(entropies) == len(logprobs) == one.tokens <= 12
        assert int(arrays.unpack_array(bytes(one.lengths)).sum()) == len(one.text)
        assert np.all(entropies.astype(float) > 0)
        assert np.all(logprobs.astype(float) < 0)
    assert {side.device for side in made.sides.all()} == {"cpu"}
    state = display.build_sampling_state(made)
    for side in state["sides"]:
        for one in side["samples"]:
            assert "".join(unit[0] for unit in one["units"] if not unit[3] & 1) == texts(made)[0][one["number"]]


def test_greedy_answers_are_all_the_same_and_cannot_be_asked_about(team: Team, owner: User, sides: list[Checkpoint]) -> None:
    made = sampled(team, owner, sides[0], temperature="0", max_tokens="4")
    assert len({text for row in texts(made) for text in row}) == 1
    with pytest.raises(Refusal, match="All answers are identical"):
        stored_samples.to_queue(made, owner)
    assert not Queue.across_teams.exists()
    assert not Rollout.across_teams.filter(phase="play").exists()


def test_samples_become_rollouts_of_the_run_and_a_blind_queue_once(team: Team, owner: User, run: Run, sides: list[Checkpoint]) -> None:
    other = make_run(team, status=Status.FINISHED, name="other")
    write(other.folder, [started()])
    while ingest_spool(other):
        pass
    theirs = checkpoint(other, 5)
    made = sampled(team, owner, sides[0], theirs, seed="3")
    side = made.sides.get(place=1)
    Sample.objects.filter(side=side, number=0).update(text="a different answer")
    before = run.rollouts
    queue = stored_samples.to_queue(made, owner)
    assert stored_samples.to_queue(made, owner) == queue
    assert (queue.kind, queue.blind, queue.items.count()) == (Kind.PAIR, True, 1)
    item = queue.items.get()
    stored = [Rollout.across_teams.get(pk=pk) for pk in item.rollouts]
    assert [(one.run_id, one.step, one.phase, one.sample, one.reward) for one in stored] == [
        (run.pk, 1, "play", 0, None),
        (other.pk, 5, "play", 0, None),
    ]
    assert [one.completion for one in stored] == [texts(made)[0][0], "a different answer"]
    assert stored[0].prompt.messages == [["user", "What is 3 + 4?"]]
    run.refresh_from_db()
    assert run.rollouts == before + 2
    assert (run.status, run.step) == (Status.FINISHED, 2)
    assert_database_equals_spool(run)


def test_a_run_that_trains_takes_no_samples_yet(team: Team, owner: User, run: Run, sides: list[Checkpoint]) -> None:
    made = sampled(team, owner, sides[0])
    Run.across_teams.filter(pk=run.pk).update(status=Status.RUNNING)
    with pytest.raises(Refusal, match="once it has ended"):
        stored_samples.to_queue(made, owner)


def test_stopping_keeps_what_was_written_and_ends_the_process(
    team: Team, owner: User, sides: list[Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, lines = asked(team, owner, *sides, max_tokens="200"), list[str]()
    told = sampling.publish_sampling_update

    def stop_at_the_first_words(one: Sampling) -> None:
        told(one)
        lines.append(one.status)
        if Sample.objects.filter(side__sampling=one, tokens__gt=0).exists():
            one.stop()

    monkeypatch.setattr(sampling, "publish_sampling_update", stop_at_the_first_words)
    sampling.run_sampling(str(made.pk))
    made.refresh_from_db()
    assert made.status == SamplingStatus.STOPPED
    assert sampling.idle_sampler.process is None
    assert Sample.objects.filter(side__sampling=made).count() == 2  # of the first side only
    assert len(lines) < 12


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"prompt": "  "}, "prompt", "Enter a prompt"),
        ({"first": "999999"}, "first", "no such checkpoint"),
        ({"first": "99999999999999999999"}, "first", "less than or equal"),
        ({"second": "same"}, "second", "same checkpoint twice"),
        ({"count": "9"}, "count", "less than or equal to 8"),
        ({"temperature": "warm"}, "temperature", "Enter a number"),
        ({"temperature": "nan"}, "temperature", "Enter a number"),
        ({"max_tokens": "0"}, "max_tokens", "greater than or equal to 1"),
        ({"prompt": "a\0b"}, "prompt", "Null characters"),
    ],
)
def test_what_cannot_be_asked_names_its_field_and_keeps_the_rest(
    as_owner: Client, sides: list[Checkpoint], fields: dict[str, str], field: str, words: str
) -> None:
    first = str(sides[0].pk)
    given = {**ASKED, "first": first, **{key: first if value == "same" else value for key, value in fields.items()}}
    answer = as_owner.post("/playground/", given)
    assert answer.status_code == 422
    assert words in " ".join(answer.context["form"].errors[field])
    assert 'value="0.9"' in answer.content.decode()
    assert not Sampling.across_teams.exists()


def test_files_that_are_gone_are_said(team: Team, owner: User, run: Run, sides: list[Checkpoint], as_owner: Client) -> None:
    made = asked(team, owner, sides[0])
    shutil.rmtree(run.folder / "checkpoints")
    sampling.run_sampling(str(made.pk))
    made.refresh_from_db()
    assert (made.status, "no longer on disk" in made.error) == (SamplingStatus.FAILED, True)
    answer = as_owner.post("/playground/", {**ASKED, "first": str(sides[0].pk)})
    assert "files are no longer on disk" in answer.content.decode()


def test_a_policy_that_cannot_be_loaded_fails_with_one_readable_line(team: Team, owner: User, run: Run, sides: list[Checkpoint]) -> None:
    (run.folder / "final" / "model.safetensors").write_bytes(b"garbage")
    made = sampled(team, owner, sides[1])
    assert made.status == SamplingStatus.FAILED
    assert made.error
    assert "\n" not in made.error


def test_the_page_asks_once_shows_everything_and_leads_to_a_queue(as_owner: Client, team: Team, sides: list[Checkpoint]) -> None:
    given = {**ASKED, "first": str(sides[0].pk), "second": str(sides[1].pk), "token": "once"}
    page = as_owner.post("/playground/", given).headers["Location"]
    assert as_owner.post("/playground/", given).headers["Location"] == page
    made = Sampling.across_teams.get()
    assert "Loading the policy" in as_owner.get(page).content.decode()
    sampling.run_sampling(str(made.pk))
    state = as_owner.get(f"{page}state.json").json()
    assert (state["status"], len(state["sides"]), len(state["sides"][0]["samples"])) == ("finished", 2, 2)
    again = as_owner.get(f"/playground/?again={made.pk}").context["values"]
    assert (again["prompt"], again["first"], again["second"], again["max_tokens"]) == ("What is 3 + 4?", sides[0].pk, sides[1].pk, 12)
    assert "What is 3 + 4?" in as_owner.get("/playground/").content.decode()
    Sample.objects.filter(side__sampling=made, side__place=1).update(text="other words")
    queue = as_owner.post(f"{page}label/").headers["Location"]
    assert queue == f"/label/{Queue.across_teams.get().pk}/"


def test_viewers_read_annotators_and_strangers_do_not(client: Client, as_stranger: Client, team: Team, owner: User, sides: list[Checkpoint]) -> None:
    made = asked(team, owner, sides[0])
    client.force_login(make_member("viewer@example.org", team, Role.VIEWER))
    assert client.get(f"/playground/{made.pk}/").status_code == 200
    assert client.post("/playground/", ASKED).status_code == 403
    client.force_login(make_member("ann@example.org", team, Role.ANNOTATOR))
    assert client.get(f"/playground/{made.pk}/").status_code == 403
    assert as_stranger.get(f"/playground/{made.pk}/").status_code == 404
    theirs = as_stranger.post("/playground/", {**ASKED, "first": str(sides[0].pk)})
    assert "no such checkpoint" in theirs.context["form"].errors["first"][0]


def test_lost_and_forgotten_samplings_end(team: Team, owner: User, sides: list[Checkpoint]) -> None:
    lost, old = asked(team, owner, sides[0]), asked(team, owner, sides[0])
    lost.claim()
    Sampling.across_teams.filter(pk=lost.pk).update(beat=timezone.now() - timedelta(minutes=1))
    Sampling.across_teams.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(hours=2))
    chores.sweep_samplings()
    found: dict[uuid.UUID, Any] = dict(Sampling.across_teams.values_list("pk", "status"))
    assert found == {lost.pk: SamplingStatus.FAILED, old.pk: SamplingStatus.FAILED}
    assert not lost.finish()


@pytest.mark.django_db(transaction=True)
def test_of_two_workers_one_samples_and_of_two_presses_one_queue_is_made(team: Team, owner: User, sides: list[Checkpoint]) -> None:
    made = asked(team, owner, sides[0], max_tokens="4")

    def at_once(what: Any) -> None:
        def act() -> None:
            what()
            connection.close()

        threads = [threading.Thread(target=act) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    at_once(lambda: sampling.run_sampling(str(made.pk)))
    assert Sample.objects.filter(side__sampling=made).count() == 2
    assert Side.objects.get(sampling=made).samples.count() == 2
    at_once(lambda: stored_samples.to_queue(Sampling.across_teams.get(pk=made.pk), owner))
    assert Queue.across_teams.count() == 1
    assert Rollout.across_teams.filter(phase="play").count() == 2


@pytest.mark.feature(80)
def test_a_program_asks_reads_and_labels(team: Team, owner: User, stranger: User, sides: list[Checkpoint]) -> None:
    api, body = client_of(team, owner), {"first": sides[0].pk, "prompt": "What is 3 + 4?", "max_tokens": 4, "seed": 7}
    made = api.send("samplings", body)
    assert (made.status_code, made.json()["status"], made.json()["sides"][0]["policy"]) == (201, "queued", sides[0].pk)
    path = f"samplings/{made.json()['id']}"
    assert api.send(f"{path}/queue").status_code == 409
    sampling.run_sampling(made.json()["id"])
    read = api.ask(path).json()
    [written] = read["sides"][0]["samples"]
    assert (read["status"], len(written["logprobs"]), len(written["entropies"])) == ("finished", written["tokens"], written["tokens"])
    assert written["text"] == texts(Sampling.across_teams.get())[0][0]
    assert api.send(f"{path}/stop").json()["status"] == "finished"
    queue = api.send(f"{path}/queue").json()["queue"]
    assert api.send(f"{path}/queue").json()["queue"] == queue == api.ask(path).json()["queue"]
    refused = api.send("samplings", {**body, "second": sides[0].pk})
    assert [one["field"] for one in refused.json()["errors"]] == ["second"]
    theirs = stranger.memberships.get().team
    assert client_of(theirs, stranger).ask(path).status_code == 404
    assert [one["field"] for one in client_of(theirs, stranger).send("samplings", body).json()["errors"]] == ["first"]
