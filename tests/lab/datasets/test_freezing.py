"""Versions: the same labels under the same rule give the same bytes; nothing changes them afterwards; every row says where it came from."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from lab.data.datasets import chores
from lab.data.datasets.downstream import flags_of, runs_of
from lab.data.datasets.freezing import build_version, freeze_next_version, preview_next_version
from lab.data.datasets.models import LOST_AFTER, Dataset, Recall, RecallKind, Version, VersionState
from lab.data.datasets.rules import Cleaning, DatasetRule, RuleError
from lab.labelling.labels.models import Item, ItemState, Judgement, JudgementState, Kind
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run
from tests.lab.datasets.labelled import dataset_of, groups_of, judge, judge_all, queue_of, run_with
from tests.lab.supervisor.spools import make_run
from trainers.contract.events import Message
from trainers.data.datasets import read_rows


@pytest.fixture
def run(team: Team) -> Run:
    return run_with(team)


@pytest.fixture
def dataset(team: Team, owner: User, teammate: User, run: Run) -> Dataset:
    queue = queue_of(team, owner, groups_of(run), overlap=2)
    judge_all(queue, [owner, teammate], strength=2)
    return dataset_of(team, owner, queue)


def frozen(dataset: Dataset, **rule: Any) -> Version:
    version = freeze_next_version(dataset, None, DatasetRule.read({"test_share": 0, **rule}))
    build_version(version.pk)
    version.refresh_from_db()
    return version


def ready(dataset: Dataset, **rule: Any) -> Version:
    version = frozen(dataset, **rule)
    assert version.state == VersionState.READY, version.error
    return version


def lines(version: Version, split: str = "train") -> list[dict[str, Any]]:
    return [json.loads(line) for line in version.path(split).read_text(encoding="utf-8").splitlines()]


def item(dataset: Dataset, place: int = 0) -> Item:
    return Item.across_teams.filter(queue__datasets=dataset).order_by("place")[place]


@pytest.mark.feature(71)
def test_a_version_is_rows_files_and_a_digest_that_agree(dataset: Dataset) -> None:
    version = ready(dataset, test_share=0.5)
    files = {split: version.path(split).read_bytes() for split in ("train", "test")}
    assert version.digest == hashlib.sha256(files["train"] + files["test"]).hexdigest()
    assert version.counts["sha256"] == {split: hashlib.sha256(content).hexdigest() for split, content in files.items()}
    assert version.train_file == f"good-answers-{dataset.pk}-v1-{version.digest[:8]}-train.jsonl"
    for split in files:
        assert list(version.rows.filter(split=split).order_by("place").values_list("row", flat=True)) == lines(version, split)
        assert stat.S_IMODE(version.path(split).stat().st_mode) == 0o444
    assert version.counts["train"] + version.counts["test"] == 6
    assert len(read_rows(version.path(), "dpo")) == version.counts["train"]


def test_the_same_labels_under_the_same_rule_give_the_same_bytes(dataset: Dataset) -> None:
    first, second = ready(dataset), ready(dataset)
    assert (second.number, second.digest) == (2, first.digest)
    assert first.path().read_bytes() == second.path().read_bytes()
    assert first.path() != second.path()


def test_labels_that_change_later_do_not_change_a_version(dataset: Dataset) -> None:
    version = ready(dataset)
    before = version.path().read_bytes()
    for judgement in item(dataset).judgements.all():
        judgement.preferences.all().delete()
        Judgement.across_teams.filter(pk=judgement.pk).update(verdict="tie")
    Judgement.across_teams.filter(item=item(dataset, 1)).update(state=JudgementState.WITHDRAWN)
    build_version(version.pk)  # a message that comes twice
    version.refresh_from_db()
    assert version.path().read_bytes() == before
    assert version.rows.count() == 6
    assert len(preview_next_version(dataset, DatasetRule.read(version.rule)).rows) == 4


@pytest.mark.feature(70)
def test_every_row_says_where_it_came_from(dataset: Dataset, run: Run, owner: User, teammate: User) -> None:
    for step in (1, 2):
        folder = f"checkpoints/checkpoint-{step}"
        (run.folder / folder).mkdir(parents=True)
        run.checkpoints.create(attempt=1, step=step, path=folder, bytes=1, created_at=timezone.now())
    version = ready(dataset)
    first, last = version.rows.get(place=0), version.rows.get(place=5)
    chosen = first.provenance["sides"]["chosen"]
    assert (chosen["run"], chosen["run_id"], chosen["step"], chosen["group"], chosen["sample"]) == (run.number, str(run.pk), 1, 0, 0)
    assert chosen["sampler"] == {"temperature": 0.7, "max_completion_length": 40}
    assert chosen["checkpoint"] == {"step": 1, "exact": True}
    assert last.provenance["sides"]["chosen"]["checkpoint"] == {"step": 2, "exact": False}
    assert first.provenance["votes"] == {"for": 2, "against": 0, "tie": 0}
    assert first.provenance["strength"] == 2
    assert (first.labellers, first.item) == (sorted([owner.pk, teammate.pk]), item(dataset).pk)
    assert first.rollouts == item(dataset).rollouts


@pytest.mark.feature(71)
def test_no_prompt_is_on_both_sides_of_the_split_however_it_is_written(team: Team, owner: User) -> None:
    texts = ["What is  2+2?", "what is 2+2?", "Ｗhat is 2+2?\n"]
    runs = [run_with(team, steps=8, groups=1, prompt=[Message("user", text)]) for text in texts]
    others = run_with(team, steps=8, groups=2)
    queue = queue_of(team, owner, [group for one in (*runs, others) for group in groups_of(one)])
    judge_all(queue, [owner])
    version = ready(dataset_of(team, owner, queue), test_share=0.4)
    sides = {row.split for row in version.rows.all() if "2+2" in row.row["prompt"][0]["content"]}
    assert len(sides) == 1
    prompts = [{json.dumps(row["prompt"]) for row in lines(version, split)} for split in ("train", "test")]
    assert prompts[0]
    assert prompts[1]
    assert not prompts[0] & prompts[1]


@pytest.mark.feature(110)
def test_rules_decide_what_is_left_out_and_say_how_much(dataset: Dataset, owner: User, teammate: User) -> None:
    split_votes, tied = item(dataset, 0), item(dataset, 1)
    Judgement.objects.filter(item=split_votes, user=teammate).get().preferences.all().delete()
    for judgement in tied.judgements.all():
        judgement.preferences.all().delete()
        Judgement.across_teams.filter(pk=judgement.pk).update(verdict="tie")
    Item.across_teams.filter(pk=item(dataset, 2).pk).update(state=ItemState.OPEN)
    version = ready(dataset, min_agreement=0.8, first_step=1, last_step=2)
    left_out = {
        "pairs with too little agreement": 1,
        "ties": 1,
        "items with missing labels": 1,
        "answers of other steps": 2,
    }
    assert version.counts["left_out"] == left_out
    assert version.counts["train"] == 1
    assert ready(dataset, max_age=0, finished_only=False).counts["train"] == 2
    assert ready(dataset, min_agreement=0.8, ties_against=False).counts["train"] == 4


def test_an_adjudicated_answer_outweighs_the_votes(dataset: Dataset) -> None:
    first = item(dataset)
    Item.across_teams.filter(pk=first.pk).update(state=ItemState.SETTLED, final={"verdict": "b", "strength": 3, "tiers": None, "correction": ""})
    version = ready(dataset, aggregation="adjudicated", margin="strength")
    [row] = version.rows.all()
    assert row.rollouts == first.rollouts[::-1]
    assert row.row["margin"] == 3.0
    assert row.provenance["votes"]["against"] == 2
    assert ready(dataset).rows.get(place=0).rollouts == first.rollouts[::-1]


def test_votes_weigh_by_the_share_of_gold_right(dataset: Dataset, owner: User, teammate: User) -> None:
    gold, asked = [item(dataset, place) for place in (0, 1, 2)], item(dataset, 3)
    for one in gold:
        Item.across_teams.filter(pk=one.pk).update(gold={"verdict": "a"})
    for judgement in Judgement.across_teams.filter(user=teammate, item__in=[*gold, asked]):
        judgement.preferences.update(chosen=asked.rollouts[1], rejected=asked.rollouts[0])
        Judgement.across_teams.filter(pk=judgement.pk).update(verdict="b")
    assert not ready(dataset).rows.filter(item=asked.pk).exists()
    row = ready(dataset, aggregation="weighted").rows.get(item=asked.pk)
    assert row.rollouts == asked.rollouts
    assert row.provenance["agreement"] == pytest.approx(0.8)


def test_duplicates_go_and_contradictions_are_reported(team: Team, owner: User) -> None:
    same = {"prompt": [Message("user", "Same?")]}
    runs = [run_with(team, steps=1, groups=1, **same) for _ in range(3)]
    for sample in range(2):
        Rollout.objects.filter(run__in=runs, sample=sample).update(completion=f"text {sample}")
    other = run_with(team, steps=1, groups=1)
    queue = queue_of(team, owner, [groups_of(one)[0] for one in (*runs, other)])
    items = list(queue.items.order_by("place"))
    for one, verdict in zip(items, "aaba", strict=True):
        judge(one, owner, verdict)
    version = ready(dataset_of(team, owner, queue))
    assert version.counts["left_out"] == {"contradictions": 2, "duplicates": 1}
    assert version.counts["train"] == 1
    assert version.counts["contradictions"] == [[items[0].pk, items[2].pk]]


@pytest.mark.feature(57)
def test_corrections_take_the_place_of_the_chosen_answer(dataset: Dataset, team: Team, owner: User) -> None:
    Judgement.across_teams.filter(item=item(dataset), user=owner).update(correction="The right one.")
    row = ready(dataset, corrections="use").rows.get(place=0)
    assert row.row["chosen"] == [{"role": "assistant", "content": "The right one."}]
    assert row.rollouts == [item(dataset).rollouts[1]]
    assert row.provenance["corrected"]
    only = dataset_of(team, owner, *dataset.queues.all(), form="completion", name="Corrections")
    version = ready(only, corrections="only")
    assert [line["completion"][0]["content"] for line in lines(version)] == ["The right one."]
    assert len(read_rows(version.path(), "sft")) == 1


def test_answers_become_kto_rows(dataset: Dataset, team: Team, owner: User, run: Run) -> None:
    single = queue_of(team, owner, [[group[0]] for group in groups_of(run)], Kind.SINGLE)
    for one, verdict in zip(single.items.order_by("place"), ("good", "bad", "neutral", "good", "bad", "good"), strict=True):
        judge(one, owner, verdict)
    version = ready(dataset_of(team, owner, single, form="kto"))
    assert [line["label"] for line in lines(version)] == [True, False, True, False, True]
    assert version.counts["left_out"] == {"answers judged neutral": 1}
    pairs = ready(dataset_of(team, owner, *dataset.queues.all(), form="kto"))
    assert [line["label"] for line in lines(pairs)] == [True, False] * 6
    assert len(read_rows(pairs.path(), "kto")) == 12


def test_a_ranking_gives_its_implied_pairs(team: Team, owner: User) -> None:
    run = run_with(team, steps=1, groups=1, samples=5)
    queue = queue_of(team, owner, groups_of(run), Kind.RANKING)
    judge(queue.items.get(), owner, "ranked", tiers=[[0, 1], [2], [3, 4]])
    version = ready(dataset_of(team, owner, queue))
    assert version.counts["train"] == 8
    assert ready(dataset_of(team, owner, queue), max_per_prompt=3).counts["train"] == 3


def test_recalled_labels_flag_versions_and_are_not_frozen_again(dataset: Dataset, team: Team, owner: User, teammate: User) -> None:
    version = ready(dataset)
    Judgement.across_teams.filter(item=item(dataset), user=teammate).delete()
    recall = Recall.objects.create(team=team, kind=RecallKind.LABELLER, labeller=teammate, reason="asked to", by=owner)
    assert flags_of([version]) == {version.pk: [recall]}
    after = ready(dataset)
    assert flags_of([version, after]).keys() == {version.pk}
    assert teammate.pk not in after.rows.get(place=1).labellers
    Recall.across_teams.filter(pk=recall.pk).update(undone_at=timezone.now())
    assert flags_of([version]) == {}
    prompt = Recall.objects.create(team=team, kind=RecallKind.PROMPT, prompt=item(dataset).prompt_id, reason="leaked", by=owner)
    rule = Recall.objects.create(team=team, kind=RecallKind.RULE, rule={"test_share": 0, "cleaning": {"by": []}}, reason="wrong", by=owner)
    assert flags_of([version]) == {version.pk: [rule, prompt]}
    assert ready(dataset).counts["left_out"] == {"items recalled": 1}


def test_runs_are_found_by_the_file_they_name(dataset: Dataset, team: Team) -> None:
    first, second = ready(dataset), ready(dataset)
    run = make_run(team, spec={"recipe": "dpo", "dataset": {"path": str(first.path())}})
    assert runs_of([first, second]) == {first.pk: [run]}


def test_an_empty_version_is_refused_with_the_reasons(dataset: Dataset) -> None:
    version = frozen(dataset, min_labels=3)
    assert version.state == VersionState.FAILED
    assert "6 items with too few labels" in version.error
    assert not version.train_file
    assert version.retry()
    build_version(version.pk)
    version.refresh_from_db()
    assert version.state == VersionState.FAILED


def test_a_rule_that_cannot_work_is_refused_before_anything_is_made(dataset: Dataset, team: Team, owner: User) -> None:
    for wrong in ({"test_share": 2}, {"aggregation": "best"}, {"first_step": 5, "last_step": 2}, {"min_agreement": "much"}, {"queues": ["x"]}):
        with pytest.raises(RuleError):
            freeze_next_version(dataset, None, DatasetRule.read(wrong))
    with pytest.raises(RuleError, match="no queue is chosen"):
        freeze_next_version(dataset_of(team, owner), None, DatasetRule())
    assert not Version.across_teams.exists()


def test_a_build_whose_worker_is_gone_is_taken_up_again(dataset: Dataset) -> None:
    version = freeze_next_version(dataset, None, DatasetRule())
    assert version.claim()
    assert not version.claim()
    Version.across_teams.filter(pk=version.pk).update(beat_at=timezone.now() - LOST_AFTER - timedelta(seconds=1))
    chores.sweep_versions_and_uploads()
    version.refresh_from_db()
    assert version.state == VersionState.QUEUED
    build_version(version.pk)
    version.refresh_from_db()
    assert version.state == VersionState.READY


def test_a_rule_survives_being_stored() -> None:
    rule = DatasetRule(queues=(3, 1), cleaning=Cleaning(by=("rewards",), action="drop"), max_age=5)
    assert DatasetRule.read(json.loads(json.dumps(rule.as_json()))) == DatasetRule(queues=(1, 3), cleaning=rule.cleaning, max_age=5)
    assert DatasetRule.read({"unknown": 1}) == DatasetRule()


def test_building_asks_a_number_of_queries_that_does_not_grow_with_the_items(dataset: Dataset, django_assert_max_num_queries: Any) -> None:
    version = freeze_next_version(dataset, None, DatasetRule())
    with django_assert_max_num_queries(40):
        build_version(version.pk)
    assert connection.vendor == "postgresql"


def test_suspect_labels_are_reported_left_out_swapped_or_weighed_less(dataset: Dataset, owner: User, teammate: User) -> None:
    wrong = item(dataset, 2)
    for judgement in wrong.judgements.all():
        judgement.preferences.update(chosen=wrong.rollouts[1], rejected=wrong.rollouts[0])
        Judgement.across_teams.filter(pk=judgement.pk).update(verdict="b")
    by = {"by": ["rewards"], "vote": "all"}
    reported = ready(dataset, cleaning=by)
    suspect = reported.rows.get(item=wrong.pk)
    assert suspect.suspect == {"score": 1.0, "by": {"rewards": 1.0}, "reasons": ["0 of 2 reward functions agree with the label"], "action": "report"}
    assert reported.counts["cleaned"] == {"looked at": 6, "suspect": 1, "by rewards": 1}
    assert ready(dataset, cleaning={**by, "action": "drop"}).counts["left_out"] == {"suspect labels": 1}
    swapped = ready(dataset, cleaning={**by, "action": "flip"}).rows.get(item=wrong.pk)
    assert swapped.rollouts == wrong.rollouts
    assert swapped.provenance["sides"]["chosen"]["rollout"] == wrong.rollouts[0]
    weighed = ready(dataset, cleaning={**by, "action": "down-weight"})
    assert sorted(line["weight"] for line in lines(weighed)) == [0.0, *[1.0] * 5]
    assert len(read_rows(weighed.path(), "dpo")) == 6


@pytest.mark.feature(107)
def test_labels_of_older_policies_weigh_less(dataset: Dataset) -> None:
    """Two prompts at each of steps 1, 2 and 3; the weight halves with every step of age."""
    version = ready(dataset, age_half_life=1)
    assert sorted(line["weight"] for line in lines(version)) == [0.25, 0.25, 0.5, 0.5, 1.0, 1.0]
    assert {row.provenance["policy_age"]: row.row["weight"] for row in version.rows.all()} == {0: 1.0, 1: 0.5, 2: 0.25}
    assert version.counts["effective"] == pytest.approx(3.5**2 / 2.625, abs=0.05)
    assert len(read_rows(version.path(), "dpo")) == 6
    assert "weight" not in lines(ready(dataset))[0]
    later = ready(dataset, age_half_life=2, age_from=5, max_age=3)
    assert sorted(line["weight"] for line in lines(later)) == pytest.approx([0.5**1.5] * 2 + [0.5] * 2, abs=1e-6)


def test_the_weights_of_age_and_of_suspicion_are_multiplied(dataset: Dataset) -> None:
    cleaning = {"by": ["speed"], "min_seconds": 10.0, "threshold": 0.5, "action": "down-weight"}  # all judged in 5 s: suspicion 0.75
    weights = [line["weight"] for line in lines(ready(dataset, age_half_life=1, cleaning=cleaning))]
    assert sorted(weights) == [0.0625, 0.0625, 0.125, 0.125, 0.25, 0.25]


def test_forms_without_a_weight_refuse_one_by_age() -> None:
    with pytest.raises(RuleError, match="no weight"):
        DatasetRule.read({"form": "completion", "age_half_life": 5})
    with pytest.raises(RuleError, match="from 1"):
        DatasetRule.read({"age_half_life": 0})


@pytest.mark.django_db(transaction=True)
def test_versions_frozen_at_once_get_numbers_of_their_own_and_each_is_built_once(dataset: Dataset) -> None:
    def apart(work: Callable[[], Any]) -> Any:
        try:
            return work()
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        versions = list(pool.map(lambda _: apart(lambda: freeze_next_version(dataset, None, DatasetRule(test_share=0))), range(4)))
        list(pool.map(lambda _: apart(lambda: build_version(versions[0].pk)), range(4)))
    assert sorted(version.number for version in versions) == [1, 2, 3, 4]
    versions[0].refresh_from_db()
    assert versions[0].state == VersionState.READY
    assert versions[0].rows.count() == 6
