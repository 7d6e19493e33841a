"""Branches with the real command, a real policy and real files: what is kept, what is scored, who may, and what becomes of them."""

import shutil
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from django.test import Client
from django.utils import timezone

from lab.data.datasets.sides import read_sides
from lab.labelling.labels.models import Kind, Queue
from lab.labelling.labels.new_queues import make_queue
from lab.lib.refusals import Refusal
from lab.models.branches import answering, chores
from lab.models.branches.display import build_branch_state
from lab.models.branches.models import Branch, Continuation, TokenAlternatives
from lab.models.branches.offered import choose_nearest_before, describe_distance, list_offered_checkpoints
from lab.models.branches.pairs import add_branch_pairs
from lab.models.branches.requests import BranchForm, delete_branch
from lab.models.branches.room import count_branch_bytes
from lab.models.playground.models import SamplingStatus
from lab.rollouts.reading.groups import summarize_step_groups
from lab.rollouts.trajectories.models import Rollout, RolloutTokens
from lab.teams.accounts.models import Role, Team, User
from lab.teams.audit.models import Entry
from lab.training.runs.models import Checkpoint, Run, Status
from tests.conftest import make_member
from tests.lab.api.conftest import client_of
from tests.lab.branches.conftest import STEP, save_checkpoint
from trainers.contract import arrays
from trainers.judges import rewards
from trainers.tasks import registry
from trainers.tasks.base import Example

PLACE = 4
ASKED = {"token": PLACE, "choice": "token", "alternative": 77, "count": 3, "temperature": 1.0, "max_tokens": 10, "seed": 5}


def asked(stored: Rollout, checkpoint: Checkpoint, user: User, **changes: Any) -> Branch:
    form = BranchForm(stored, {**ASKED, "checkpoint": checkpoint.pk, **changes})
    assert form.is_valid(), form.errors
    return form.ask(user)


def branched(stored: Rollout, checkpoint: Checkpoint, user: User, **changes: Any) -> Branch:
    made = asked(stored, checkpoint, user, **changes)
    answering.answer_branch(str(made.pk))
    made.refresh_from_db()
    assert (made.status, made.error) == (SamplingStatus.FINISHED, "")
    return made


@pytest.mark.feature(99)
def test_a_branch_keeps_ids_scores_as_the_run_does_and_changes_no_statistic(stored: Rollout, checkpoint: Checkpoint, owner: User) -> None:
    before = summarize_step_groups(stored.run, "train", STEP)
    made = branched(stored, checkpoint, owner)
    kept = arrays.unpack_array(bytes(RolloutTokens.objects.get(rollout=stored).ids)).tolist()[:PLACE]
    task = registry.get_task("mini_gsm")
    drawn = task.examples("train", stored.run.spec["training"]["prompts"], stored.run.spec.get("seed", 0), stored.run.spec["task"]["difficulty"])
    example: Example = drawn[0]
    weights = {name: stored.run.spec["task"].get("rewards", {}).get(name, one.weight) for name, one in task.rewards.items()}
    assert made.continuations.count() == 3
    for one in made.continuations.all():
        ids = arrays.unpack_array(bytes(one.ids)).tolist()
        assert ids[: PLACE + 1] == [*kept, 77]
        assert PLACE + 1 < len(ids) <= PLACE + 1 + 10
        entropies = arrays.unpack_array(bytes(one.entropies)).astype(np.float64)
        assert len(entropies) == len(ids) == one.tokens == len(arrays.unpack_array(bytes(one.logprobs)))
        known = rewards.score_all(task, one.text, example)
        assert (one.rewards, one.reward) == (known, rewards.weighted_sum(known, weights))
    assert made.entropy is not None
    assert made.note == ""
    assert (made.behind, made.kept, made.device) == (0, PLACE + 1, "cpu")
    assert summarize_step_groups(stored.run, "train", STEP) == before
    assert Rollout.objects.filter(run=stored.run).count() == 2
    state = build_branch_state(made)
    [sample, *_] = state["sides"][0]["samples"]
    assert sample["against"] == pytest.approx(sample["reward"] - 0.5)  # the group's rewards are 0 and 1
    assert Entry.across_teams.filter(action="branch.start").count() == 1


def test_alternatives_are_asked_once_and_the_same_seed_branches_the_same(
    stored: Rollout, checkpoint: Checkpoint, owner: User, as_owner: Client
) -> None:
    path, given = f"/rollouts/{stored.pk}/alternatives/", {"token": PLACE, "checkpoint": checkpoint.pk}
    state = as_owner.post(path, given).json()
    assert as_owner.post(path, given).json()["id"] == state["id"]
    answering.answer_alternatives(state["id"])
    answer = as_owner.get(state["url"]).json()
    assert (answer["status"], len(answer["tokens"])) == ("finished", 12)
    likely = [token["probability"] for token in answer["tokens"]]
    assert likely == sorted(likely, reverse=True)
    assert answer["own"]["rank"] >= 1
    first, second = (branched(stored, checkpoint, owner, choice="policy", alternative=None, count=2) for _ in range(2))
    texts = [[one.text for one in made.continuations.all()] for made in (first, second)]
    assert texts[0] == texts[1]
    assert (first.chosen, first.kept) == (None, PLACE)


def test_the_nearest_checkpoint_at_or_before_is_chosen_and_its_distance_said(stored: Rollout) -> None:
    assert list_offered_checkpoints(stored) == []
    later = save_checkpoint(stored.run, 9)
    [only] = list_offered_checkpoints(stored)
    assert (choose_nearest_before([only]), describe_distance(only.behind)) == (only, "7 updates after the policy that sampled this rollout")
    earlier = save_checkpoint(stored.run, 1)
    nearest = choose_nearest_before(list_offered_checkpoints(stored))
    assert nearest
    assert (nearest.checkpoint, nearest.behind, later.step) == (earlier, 1, 9)
    assert nearest.words == "step 1: 1 update before the policy that sampled this rollout"
    shutil.rmtree(stored.run.folder / "checkpoints" / "checkpoint-1")
    assert [one.checkpoint for one in list_offered_checkpoints(stored)] == [later]


def test_pairs_go_into_a_new_and_an_open_queue_with_their_provenance(stored: Rollout, checkpoint: Checkpoint, owner: User, team: Team) -> None:
    made = branched(stored, checkpoint, owner, temperature=2.0)
    Continuation.objects.filter(branch=made, number=2).update(text=stored.completion)  # the same words as the original: no question
    queue, added = add_branch_pairs(made, owner, "original", [], None, "")
    assert (queue.kind, queue.blind, added) == (Kind.PAIR, True, 2)
    first = queue.items.order_by("pk")[0]
    assert first.rollouts[0] == stored.pk
    theirs = Rollout.objects.select_related("prompt").get(run=stored.run, pk=first.rollouts[1])
    assert (theirs.phase, theirs.step, theirs.reward, theirs.prompt_id) == ("play", 2, None, stored.prompt_id)
    assert theirs.completion == made.continuations.get(number=0).text
    provenance = read_sides(team, first.rollouts)[theirs.pk].provenance
    assert provenance["branch"]["rollout"] == stored.pk
    assert (provenance["branch"]["token"], provenance["branch"]["id"], provenance["run"]) == (PLACE, str(made.pk), stored.run.number)
    assert provenance["sampler"] == {"temperature": 2.0, "max_new_tokens": 10}
    assert "branch" not in read_sides(team, first.rollouts)[stored.pk].provenance
    other = make_queue(team, owner, name="open", kind=Kind.PAIR)
    assert add_branch_pairs(made, owner, "each", [0, 1], other, "") == (other, 1)
    assert add_branch_pairs(made, owner, "each", [0, 1], other, "") == (other, 0)
    assert Rollout.objects.filter(run=stored.run, phase="play").count() == 2
    with pytest.raises(Refusal, match="labelling queue"):
        delete_branch(made)


def test_a_run_that_trains_lends_no_pairs_yet(stored: Rollout, checkpoint: Checkpoint, owner: User) -> None:
    made = branched(stored, checkpoint, owner, temperature=2.0, count=2)
    Run.across_teams.filter(pk=stored.run_id).update(status=Status.RUNNING)
    with pytest.raises(Refusal, match="once it has ended"):
        add_branch_pairs(made, owner, "each", [], None, "")
    assert not Queue.across_teams.exists()


def test_stopping_ends_the_process_and_files_that_are_gone_are_said(
    stored: Rollout, checkpoint: Checkpoint, owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = asked(stored, checkpoint, owner, max_tokens=300)
    told = answering.sampling.publish_sampling_update

    def stop_at_the_first_words(one: Any) -> None:
        told(one)
        if Continuation.objects.filter(branch=made, tokens__gt=0).exists():
            made.stop()

    monkeypatch.setattr(answering.sampling, "publish_sampling_update", stop_at_the_first_words)
    answering.answer_branch(str(made.pk))
    made.refresh_from_db()
    assert (made.status, answering.idle_brancher.process) == (SamplingStatus.STOPPED, None)
    assert not Continuation.objects.filter(branch=made).exclude(reward=None).exists()
    gone = asked(stored, checkpoint, owner)
    shutil.rmtree(stored.run.folder / "checkpoints")
    answering.answer_branch(str(gone.pk))
    gone.refresh_from_db()
    assert (gone.status, "no longer on disk" in gone.error) == (SamplingStatus.FAILED, True)


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"token": 9999}, "token", "counted from 0"),
        ({"checkpoint": 999_999}, "checkpoint", "cannot be branched from it"),
        ({"alternative": ""}, "alternative", "Choose a token"),
        ({"count": 17}, "count", "less than or equal to 16"),
        ({"temperature": 0}, "count", "all continuations are the same"),
        ({"max_tokens": 4000}, "max_tokens", "less than or equal to 2048"),
    ],
)
def test_what_cannot_be_asked_names_its_field(
    stored: Rollout, checkpoint: Checkpoint, as_owner: Client, changes: dict[str, Any], field: str, words: str
) -> None:
    answer = as_owner.post(f"/rollouts/{stored.pk}/branch/", {**ASKED, "checkpoint": checkpoint.pk, **changes})
    assert answer.status_code == (422)
    if "form" in (answer.context or {}):
        assert words in " ".join(answer.context["form"].errors[field])
    else:
        assert words in answer.content.decode()
    assert not Branch.across_teams.exists()


def test_the_pages_ask_once_show_the_branch_beside_the_group_and_delete_it(
    stored: Rollout, checkpoint: Checkpoint, owner: User, as_owner: Client
) -> None:
    panel = as_owner.get(f"/rollouts/{stored.pk}/branch/?token={PLACE}&part=panel").content.decode()
    assert "step 2: the policy that sampled this rollout" in panel
    assert "<html" not in panel
    given = {**ASKED, "checkpoint": checkpoint.pk, "once": "x"}
    page = as_owner.post(f"/rollouts/{stored.pk}/branch/", given).headers["Location"]
    assert as_owner.post(f"/rollouts/{stored.pk}/branch/", given).headers["Location"] == page
    made = Branch.across_teams.get()
    hostile = "<script>alert(1)</script>"
    assert count_branch_bytes(made.team) == 0
    Branch.across_teams.update(status=SamplingStatus.FINISHED, chosen_text=hostile, entropy=0.25)
    Continuation.objects.create(branch=made, number=0, text=hostile, reward=0.75, rewards={"correct": 0.75})
    assert count_branch_bytes(made.team) == len(hostile)
    for address in (page, f"/rollouts/{stored.pk}/branches/", f"/runs/{stored.run_id}/groups/train/{STEP}/0/branches/"):
        text = as_owner.get(address).content.decode()
        assert hostile not in text
        assert "0.75" in text
    assert "+0.25" in text  # against the group's mean of 0.5
    assert as_owner.get(f"/runs/{stored.run_id}/groups/train/{STEP}/0/").status_code == 200
    state = as_owner.get(f"{page}state.json").json()
    assert (state["status"], state["sides"][0]["samples"][0]["reward"]) == ("finished", 0.75)
    back = as_owner.post(f"{page}delete/").headers["Location"]
    assert back.endswith(f"/rollouts/{stored.pk}/?token={PLACE}")
    assert not Branch.across_teams.exists()


def test_without_a_checkpoint_the_panel_says_what_to_do(stored: Rollout, as_owner: Client) -> None:
    assert "No checkpoint to sample from" in as_owner.get(f"/rollouts/{stored.pk}/branch/?token=0").content.decode()


def test_viewers_read_and_strangers_find_nothing(
    client: Client, as_stranger: Client, team: Team, owner: User, stored: Rollout, checkpoint: Checkpoint
) -> None:
    made = asked(stored, checkpoint, owner)
    client.force_login(make_member("viewer@example.org", team, Role.VIEWER))
    assert client.get(f"/branches/{made.pk}/").status_code == 200
    assert client.post(f"/rollouts/{stored.pk}/branch/", ASKED).status_code == 403
    for address in (f"/branches/{made.pk}/", f"/rollouts/{stored.pk}/branch/", f"/rollouts/{stored.pk}/branches/"):
        assert as_stranger.get(address).status_code == 404


def test_lost_ones_end_and_all_go_with_the_run(team: Team, owner: User, stored: Rollout, checkpoint: Checkpoint) -> None:
    lost, old = asked(stored, checkpoint, owner), asked(stored, checkpoint, owner)
    lost.claim()
    Branch.across_teams.filter(pk=lost.pk).update(beat=timezone.now() - timedelta(minutes=1))
    Branch.across_teams.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(hours=2))
    chores.sweep_branches()
    assert set(Branch.across_teams.values_list("status", flat=True)) == {SamplingStatus.FAILED}
    Run.across_teams.filter(pk=stored.run_id).update(binned_at=timezone.now())
    assert not Branch.objects.of(team).exists()
    Rollout.across_teams.filter(run=stored.run_id).delete()
    assert not Branch.across_teams.exists()


def test_a_program_asks_reads_labels_and_deletes(team: Team, owner: User, stranger: User, stored: Rollout, checkpoint: Checkpoint) -> None:
    api = client_of(team, owner)
    made = api.send(f"rollouts/{stored.pk}/branches", {"token": PLACE, "choice": "keep", "count": 2, "max_tokens": 6, "temperature": 2.0})
    assert (made.status_code, made.json()["status"], made.json()["policy"]) == (201, "queued", checkpoint.pk)
    path = f"branches/{made.json()['id']}"
    assert api.send(f"{path}/queue", {}).status_code == 409
    answering.answer_branch(made.json()["id"])
    read = api.ask(path).json()
    assert (read["status"], read["behind"], len(read["continuations"])) == ("finished", 0, 2)
    assert all(len(one["ids"]) == len(one["entropies"]) == one["tokens"] for one in read["continuations"])
    assert [one["id"] for one in api.ask(f"rollouts/{stored.pk}/branches").json()] == [read["id"]]
    assert [one["id"] for one in api.ask(f"runs/{stored.run_id}/branches?step={STEP}&group=0").json()] == [read["id"]]
    assert api.send(f"{path}/stop").json()["status"] == "finished"
    asked_for = api.send(f"rollouts/{stored.pk}/alternatives", {"token": PLACE}).json()
    assert api.ask(f"alternatives/{asked_for['id']}").json()["status"] == "queued"
    assert TokenAlternatives.across_teams.count() == 1
    queue = api.send(f"{path}/queue", {"against": "each"}).json()
    assert queue["added"] == 1
    assert api.send(path, method="delete").status_code == 409
    theirs = client_of(stranger.memberships.get().team, stranger)
    assert theirs.ask(path).status_code == 404
    assert theirs.send(f"rollouts/{stored.pk}/branches", {"token": 0}).status_code == 404
