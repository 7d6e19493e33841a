"""Labels on turns as step pairs: what a row says, which labels make one, and that a version of them is one like any other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from lab.data.datasets.freezing import build_version, freeze_next_version, preview_next_version
from lab.data.datasets.models import Dataset, Recall, RecallKind, Source, Version, VersionState
from lab.data.datasets.rules import DatasetRule
from lab.rollouts.annotations.models import TurnPreference, TurnVerdict
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run, Status
from tests.lab.reading.episodes import BETTER, CUT_BRANCH, EPISODE, FOUND, KEPT_BRANCH, PARTS, QUESTION, SEARCH, WORSE, tell_episode
from tests.lab.supervisor.spools import make_run, rollout, started, store
from trainers.contract.events import MOST_NODE_TEXT, RolloutNode
from trainers.data.datasets import read_rows

STEP = {
    "prompt": [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": SEARCH},
        {"role": "tool", "content": FOUND},
    ],
    "chosen": [{"role": "assistant", "content": BETTER}],
    "rejected": [{"role": "assistant", "content": WORSE}],
}


@pytest.fixture
def run(team: Team) -> Run:
    return make_run(team, status=Status.FINISHED, task="search")


@pytest.fixture
def one(run: Run) -> Rollout:
    return keep(run)


@pytest.fixture
def dataset(team: Team, owner: User) -> Dataset:
    return Dataset.objects.create(team=team, name="Steps", source=Source.TURNS, created_by=owner)


def keep(run: Run, sample: int = 0, **event: Any) -> Rollout:
    fields = {**tell_episode(), **event}
    store(run, *([started()] if not sample else []), rollout(sample=sample, **fields))
    return Rollout.across_teams.get(run=run, sample=sample)


def judged(one: Rollout, user: User, node: int, verdict: str) -> None:
    TurnVerdict.objects.create(rollout=one, user=user, node=node, verdict=verdict)


def preferred(one: Rollout, user: User, chosen: int, rejected: int) -> None:
    TurnPreference.objects.create(rollout=one, against=one, user=user, chosen=chosen, rejected=rejected)


def rows_of(dataset: Dataset, **rule: Any) -> list[dict[str, Any]]:
    return [row.row for row in preview_next_version(dataset, DatasetRule.read({"test_share": 0, **rule})).rows]


def left_out(dataset: Dataset, **rule: Any) -> dict[str, int]:
    return dict(preview_next_version(dataset, DatasetRule.read({"test_share": 0, **rule})).left_out)


def test_a_preference_between_branches_becomes_a_pair_from_the_shared_state(dataset: Dataset, one: Rollout, owner: User) -> None:
    preferred(one, owner, KEPT_BRANCH, CUT_BRANCH)
    assert rows_of(dataset) == [STEP]


def test_a_bad_turn_beside_the_branch_that_was_kept_becomes_a_pair(dataset: Dataset, one: Rollout, owner: User) -> None:
    judged(one, owner, CUT_BRANCH, "bad")
    assert rows_of(dataset) == [STEP]


def test_a_cut_that_was_wrong_is_said_by_two_verdicts(dataset: Dataset, one: Rollout, owner: User) -> None:
    """The kept branch alone being bad says nothing of the one that was cut."""
    judged(one, owner, KEPT_BRANCH, "bad")
    assert rows_of(dataset) == []
    judged(one, owner, CUT_BRANCH, "good")
    assert rows_of(dataset) == [{**STEP, "chosen": STEP["rejected"], "rejected": STEP["chosen"]}]


def test_a_verdict_on_a_turn_without_siblings_gives_nothing(dataset: Dataset, one: Rollout, owner: User) -> None:
    judged(one, owner, 1, "bad")
    judged(one, owner, 8, "good")
    assert rows_of(dataset) == []


def test_what_was_said_of_the_pair_counts_before_what_verdicts_imply(dataset: Dataset, one: Rollout, owner: User, teammate: User) -> None:
    judged(one, owner, CUT_BRANCH, "bad")
    preferred(one, owner, CUT_BRANCH, KEPT_BRANCH)
    assert rows_of(dataset) == [{**STEP, "chosen": STEP["rejected"], "rejected": STEP["chosen"]}]
    preferred(one, teammate, KEPT_BRANCH, CUT_BRANCH)
    assert rows_of(dataset) == []
    assert left_out(dataset) == {"branches with split votes": 1}


def test_withdrawn_labels_other_runs_and_recalled_people_do_not_count(dataset: Dataset, one: Rollout, owner: User, team: Team) -> None:
    preferred(one, owner, KEPT_BRANCH, CUT_BRANCH)
    assert rows_of(dataset, runs=[one.run.number + 1]) == []
    assert rows_of(dataset, runs=[one.run.number]) == [STEP]
    recall = Recall.objects.create(team=team, kind=RecallKind.LABELLER, labeller=owner, reason="left", by=owner)
    assert rows_of(dataset) == []
    recall.delete()
    TurnPreference.across_teams.update(withdrawn_at="2026-11-28T00:00Z")
    assert rows_of(dataset) == []


def test_min_labels_and_agreement_are_asked_of_a_pair(dataset: Dataset, one: Rollout, owner: User, teammate: User) -> None:
    preferred(one, owner, KEPT_BRANCH, CUT_BRANCH)
    assert left_out(dataset, min_labels=2) == {"branches with too few labels": 1}
    preferred(one, teammate, KEPT_BRANCH, CUT_BRANCH)
    [row] = preview_next_version(dataset, DatasetRule.read({"test_share": 0, "min_labels": 2, "min_agreement": 1.0, "margin": "votes"})).rows
    assert (row.labellers, row.row["margin"]) == (sorted([owner.pk, teammate.pk]), 1.0)
    assert row.provenance["votes"] == {"for": 2, "against": 0, "tie": 0}


def test_a_branch_in_the_middle_of_a_turn_puts_what_both_share_into_both_sides(dataset: Dataset, run: Run, owner: User) -> None:
    parts = ("<search>", "Eva</search>", FOUND)
    nodes = [
        RolloutNode(0, "prompt"),
        RolloutNode(1, "policy", 0, start=0, end=1),
        RolloutNode(2, "policy", 1, start=1, end=2),
        RolloutNode(3, "world", 2, start=2, end=3),
        RolloutNode(4, "policy", 1, fate="abandoned", text="Mia</search>"),
    ]
    one = keep(run, **tell_episode(parts, nodes))
    preferred(one, owner, 2, 4)
    [row] = rows_of(dataset)
    assert row["prompt"] == [{"role": "user", "content": QUESTION}]
    assert (row["chosen"][0]["content"], row["rejected"][0]["content"]) == ("<search>Eva</search>", "<search>Mia</search>")


def test_a_context_begun_anew_is_asked_by_its_own_prompt(dataset: Dataset, run: Run, owner: User) -> None:
    nodes = [
        RolloutNode(0, "prompt"),
        RolloutNode(1, "policy", 0, text="<fold>Eva: Lumo</fold>"),
        RolloutNode(2, "prompt", 1, text="Known: Eva works at Lumo. Who leads it?"),
        RolloutNode(3, "policy", 2, start=0, end=1, finish="stop"),
        RolloutNode(4, "policy", 2, fate="cut", text=WRONG),
    ]
    one = keep(run, **tell_episode(("<answer>Leo</answer>",), nodes))
    judged(one, owner, 4, "bad")
    [row] = rows_of(dataset)
    assert row["prompt"] == [{"role": "user", "content": "Known: Eva works at Lumo. Who leads it?"}]


WRONG = "<answer>Mia</answer>"


def test_a_turn_that_was_not_stored_whole_is_left_out(dataset: Dataset, run: Run, owner: User) -> None:
    long = "x" * (MOST_NODE_TEXT - 1) + "…"
    nodes = [*EPISODE[:6], RolloutNode(3, "policy", 2, fate="cut", text=long)]
    one = keep(run, **tell_episode(PARTS, nodes))
    judged(one, owner, CUT_BRANCH, "bad")
    assert left_out(dataset) == {"turns that were too long to be stored whole": 1}


def test_a_version_is_frozen_trains_dpo_and_says_where_its_rows_come_from(dataset: Dataset, one: Rollout, owner: User) -> None:
    judged(one, owner, CUT_BRANCH, "bad")
    version = freeze_next_version(dataset, owner, DatasetRule.read({"test_share": 0}))
    build_version(version.pk)
    version.refresh_from_db()
    assert version.state == VersionState.READY, version.error
    [row] = read_rows(version.path(), "dpo")
    assert {name: row[name] for name in STEP} == STEP
    stored = Version.objects.of(dataset.team).get(pk=version.pk).rows.get()
    assert stored.rollouts == [one.pk, one.pk]
    assert stored.labellers == [owner.pk]
    assert stored.provenance["turns"] == {"chosen": KEPT_BRANCH, "rejected": CUT_BRANCH, "from": ["verdict"]}


def test_the_pages_from_labels_to_the_launch_form(as_owner: Client, one: Rollout, owner: User) -> None:
    judged(one, owner, CUT_BRANCH, "bad")
    form = as_owner.get("/datasets/new/", {"source": "turns", "run": one.run.number}).content.decode()
    assert 'value="turns" checked' in form
    wrong = as_owner.post("/datasets/new/", {"name": "Steps", "form": "kto", "source": "turns"})
    assert wrong.status_code == 422
    made = as_owner.post("/datasets/new/", {"name": "Steps", "form": "preference", "source": "turns", "run": one.run.number})
    dataset = Dataset.across_teams.get()
    assert made["Location"] == f"/datasets/{dataset.pk}/"
    html = as_owner.get(made["Location"]).content.decode()
    assert f"From labels on turns of run {one.run.number}" in html
    sent = {"rule": "1", "test_share": "0", "runs": f"{one.run.number}", "dedupe": "on"}
    assert "by verdict" in as_owner.get(f"/datasets/{dataset.pk}/preview/", sent).content.decode()
    as_owner.post(f"/datasets/{dataset.pk}/freeze/", sent)
    version = dataset.versions.get()
    build_version(version.pk)
    page = as_owner.get(f"/datasets/versions/{version.pk}/").content.decode()
    assert "nodes 6 over 3, by verdict" in page
    assert "Majority of the labellers of a pair of branches" in page
    assert as_owner.get(f"/datasets/versions/{version.pk}/train/").status_code == 200
    assert "Labels on turns" in as_owner.get("/lineage/", {"version": version.pk}).content.decode()
    assert json.loads(json.dumps(version.rule))["runs"] == [one.run.number]


def test_labels_of_another_team_are_nobodys_rows(dataset: Dataset, one: Rollout, owner: User, stranger: User) -> None:
    preferred(one, owner, KEPT_BRANCH, CUT_BRANCH)
    theirs = Dataset.objects.create(team=stranger.memberships.get().team, name="Steps", source=Source.TURNS, created_by=stranger)
    assert rows_of(theirs) == []


def test_turns_of_two_members_in_one_state_become_a_pair(dataset: Dataset, one: Rollout, run: Run, owner: User) -> None:
    nodes = [*EPISODE[:3], RolloutNode(3, "policy", 2, start=2, end=3, finish="stop")]
    two = keep(run, 1, **tell_episode((SEARCH, FOUND, WRONG), nodes))
    TurnPreference.objects.create(rollout=one, chosen=KEPT_BRANCH, against=two, rejected=3, user=owner)
    assert rows_of(dataset) == [{**STEP, "rejected": [{"role": "assistant", "content": WRONG}]}]
    [row] = preview_next_version(dataset, DatasetRule.read({"test_share": 0})).rows
    assert row.rollouts == [one.pk, two.pk]


def test_turns_of_different_states_are_no_pair(dataset: Dataset, one: Rollout, run: Run, owner: User) -> None:
    two = keep(run, 1, **tell_episode((WRONG,), [RolloutNode(0, "prompt"), RolloutNode(1, "policy", 0, start=0, end=1)]))
    TurnPreference.objects.create(rollout=one, chosen=KEPT_BRANCH, against=two, rejected=1, user=owner)
    assert rows_of(dataset) == []
    assert left_out(dataset) == {"branches of different states": 1}
