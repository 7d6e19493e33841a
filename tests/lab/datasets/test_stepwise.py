"""Marked steps and spans of single answers leave the lab as TRL's stepwise supervision: what people submitted, step by step, with who said it."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq
import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from lab.data.datasets.downstream import flags_of
from lab.data.datasets.freezing import build_version, freeze_next_version, preview_next_version
from lab.data.datasets.models import Dataset, Form, Recall, RecallKind, Version, VersionState
from lab.data.datasets.rules import DatasetRule, RuleError
from lab.labelling.labels import settlement
from lab.labelling.labels.claim_view import steps_and_units
from lab.labelling.labels.item_claims import claim_items
from lab.labelling.labels.judgements import submit_judgement
from lab.labelling.labels.models import Judgement, Kind, Queue
from lab.labelling.labels.new_queues import NewItem, make_queue
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Role, Team, User
from tests.conftest import make_member
from tests.hostile import RUN
from tests.lab.datasets.labelled import dataset_of
from tests.lab.supervisor.spools import make_run, rollout, started, store
from trainers.contract.arrays import pack_array, pack_ids
from trainers.contract.events import Message, Turn

SCRIPT = f"<script>{RUN}</script>"
TEXTS = ("First.", "Then.", "Last.")
MARKS = {"g": "good", "x": "bad", "n": "neutral"}


@pytest.fixture
def ann(team: Team) -> User:
    return make_member("ann@example.org", team)


@pytest.fixture
def bob(team: Team) -> User:
    return make_member("bob@example.org", team)


@pytest.fixture
def cat(team: Team) -> User:
    return make_member("cat@example.org", team)


def answer(group: int = 0, texts: Sequence[str] = TEXTS, prompt: Sequence[Message] = (Message("user", "What is 1 + 1?"),), **more: Any) -> Any:
    """A rollout whose steps are ``texts``, one token a character."""
    text = "\n\n".join(texts)
    tokens = [one for part in texts[:-1] for one in [*part, "\n\n"]] + [*texts[-1]]
    count = len(tokens)
    packed = {"ids": pack_ids(list(range(1, count + 1))), "lengths": pack_array([len(one) for one in tokens], "H")}
    packed |= {"logprobs": pack_array([0.0] * count, "e"), "entropies": pack_array([0.0] * count, "e")}
    return rollout(1, group, 0, prompt=list(prompt), completion=text, **packed, **more)


def queue_with(team: Team, *answers: Any, overlap: int = 1, **settings: Any) -> Queue:
    run = make_run(team)
    store(run, started(), *(answers or (answer(),)))
    rows = Rollout.objects.filter(run=run).order_by("group")
    items = [NewItem(row.prompt_id, (row.pk,)) for row in rows]
    asked = {"steps": True, "spans": True, **settings}
    return make_queue(team, None, name="Proofs", kind=Kind.SINGLE, items=items, overlap=overlap, **asked)


def said(item: Any, marks: str, choice: str = "good", spans: Sequence[tuple[int, int, str]] = ()) -> dict[str, Any]:
    """``marks``: a letter a step, g x n, or - for none."""
    steps, _ = steps_and_units(item.queue.team_id, item.rollouts[0])
    given = [{"start": step.start, "end": step.end, "mark": MARKS[one]} for step, one in zip(steps, marks, strict=False) if one != "-"]
    return {"choice": choice, "steps": given, "spans": [{"start": start, "end": end, "mark": mark} for start, end, mark in spans]}


def label(queue: Queue, user: User, marks: str, **more: Any) -> Judgement:
    """The person's next item of the queue, through the verb that the page calls."""
    held = claim_items(queue, user, hold=1)[0]
    return submit_judgement(queue, user, held.token, uuid.uuid4(), said(held.item, marks, **more), 7.0)


def rows(team: Team, user: User, queue: Queue, **rule: Any) -> list[dict[str, Any]]:
    dataset = dataset_of(team, user, queue, form=Form.STEPWISE)
    return [one.row for one in preview_next_version(dataset, made_rule(dataset, **rule)).rows]


def made_rule(dataset: Dataset, **rule: Any) -> DatasetRule:
    queues = list(dataset.queues.values_list("pk", flat=True))
    return DatasetRule.read({"test_share": 0, "form": dataset.form, "queues": queues, **rule})


def frozen(dataset: Dataset, **rule: Any) -> Version:
    version = freeze_next_version(dataset, None, made_rule(dataset, **rule))
    build_version(version.pk)
    version.refresh_from_db()
    assert version.state == VersionState.READY, version.error
    return version


def fetched(client: Client, version: Version, **query: str) -> bytes:
    response = client.get(reverse("version-export", args=[version.pk]), query)
    return b"".join(response.streaming_content)  # type: ignore[arg-type]


@pytest.mark.feature(100)
def test_a_row_is_trls_stepwise_supervision(team: Team, ann: User) -> None:
    queue = queue_with(team)
    label(queue, ann, "ggx")
    assert rows(team, ann, queue) == [{"prompt": "What is 1 + 1?", "completions": list(TEXTS), "labels": [True, True, False]}]


def test_a_prompt_of_several_messages_is_text_and_kept_as_it_was(team: Team, ann: User) -> None:
    queue = queue_with(team, answer(prompt=[Message("system", "Be brief."), Message("user", "Why?")]))
    label(queue, ann, "g")
    [made] = preview_next_version(dataset_of(team, ann, queue, form=Form.STEPWISE), DatasetRule(queues=(queue.pk,))).rows
    assert made.row["prompt"] == "system: Be brief.\n\nuser: Why?"
    assert made.provenance["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]


@pytest.mark.parametrize(
    ("everybody", "labels"),
    [
        (("ggg", "ggx", "gxx"), [True, True, False]),  # two of three, step by step
        (("gg-", "gg-", "-g-"), [True, True]),  # the third step nobody marked
        (("gxg", "ggg", "g-g"), [True]),  # split on the second: it and what follows are left out
        (("-gg", "-gg", "-gg"), None),  # a row has no gaps
        (("xgg", "ggg", "-gg"), None),
    ],
)
def test_each_step_has_the_majority_of_those_who_marked_it(
    team: Team, ann: User, bob: User, cat: User, everybody: tuple[str, ...], labels: list[bool] | None
) -> None:
    queue = queue_with(team, overlap=3)
    for user, marks in zip((ann, bob, cat), everybody, strict=True):
        label(queue, user, marks)
    assert [row["labels"] for row in rows(team, ann, queue)] == ([labels] if labels else [])


@pytest.mark.parametrize(
    ("neutral", "labels"),
    [("good", [True, True, False]), ("bad", [True, False, False]), ("leave", [True])],
)
def test_neutral_steps_count_as_the_rule_says(team: Team, ann: User, neutral: str, labels: list[bool]) -> None:
    queue = queue_with(team)
    label(queue, ann, "gnx")
    [row] = rows(team, ann, queue, neutral=neutral)
    assert row["labels"] == labels
    assert row["completions"] == list(TEXTS[: len(labels)])


@pytest.mark.parametrize(("rule", "kept"), [({"min_agreement": 0.6}, 3), ({"min_agreement": 0.7}, 1), ({"min_labels": 3}, 2)])
def test_a_row_ends_before_a_step_with_too_little_agreement_or_too_few_marks(
    team: Team, ann: User, bob: User, cat: User, rule: dict[str, Any], kept: int
) -> None:
    queue = queue_with(team, overlap=3)
    for user, marks in ((ann, "ggg"), (bob, "ggg"), (cat, "gx-")):
        label(queue, user, marks)
    [row] = rows(team, ann, queue, **rule)
    assert len(row["labels"]) == kept


def test_what_is_left_out_is_counted_with_its_reason(team: Team, ann: User) -> None:
    queue = queue_with(team, answer(0), answer(1), answer(2))
    for marks in ("g--", "-gg", ""):
        label(queue, ann, marks)
    found = preview_next_version(dataset_of(team, ann, queue, form=Form.STEPWISE), DatasetRule(queues=(queue.pk,)))
    assert found.left_out == {
        "steps from the first unmarked one": 2 + 3,
        "answers whose first step is undecided": 1,
        "answers without marked steps": 1,
    }


def test_only_accepted_judgements_of_a_reviewed_queue_count(team: Team, owner: User, ann: User, bob: User) -> None:
    queue = queue_with(team, overlap=2, reviewed=True)
    accepted, _ = label(queue, ann, "ggx"), label(queue, bob, "xxx")
    assert rows(team, owner, queue) == []
    settlement.accept_judgement(accepted, owner)
    assert [row["labels"] for row in rows(team, owner, queue)] == [[True, True, False]]


def test_what_was_sent_back_and_labels_of_a_recalled_labeller_do_not_count(team: Team, owner: User, ann: User, bob: User) -> None:
    queue = queue_with(team, overlap=2)
    one, _ = label(queue, ann, "xxx"), label(queue, bob, "ggg")
    settlement.send_back(one, owner, "Look again.")
    assert [row["labels"] for row in rows(team, owner, queue, finished_only=False)] == [[True, True, True]]
    Recall.objects.create(team=team, kind=RecallKind.LABELLER, labeller=bob, reason="x")
    assert rows(team, owner, queue, finished_only=False) == []


def test_an_adjudicated_answer_decides_where_it_marks_steps(team: Team, owner: User, ann: User, bob: User) -> None:
    queue = queue_with(team, overlap=2)
    item = label(queue, ann, "ggg").item
    label(queue, bob, "xxx", choice="bad")
    settlement.decide_queue_item(item, owner, {"choice": "good"}, [0])
    assert rows(team, owner, queue) == []  # the decision marks none, and the labellers are split
    settlement.decide_queue_item(item, owner, said(item, "gxx"), [0])
    dataset = dataset_of(team, owner, queue, form=Form.STEPWISE)
    [made] = preview_next_version(dataset, made_rule(dataset, aggregation="adjudicated")).rows
    assert made.row["labels"] == [True, False, False]
    assert made.provenance["adjudicated"] is True
    assert made.provenance["steps"][0]["marks"] == {str(ann.pk): "good", str(bob.pk): "bad"}


def test_provenance_says_who_marked_what_with_the_spans(team: Team, owner: User, ann: User, bob: User, as_owner: Client) -> None:
    queue = queue_with(team, overlap=2)
    one = label(queue, ann, "gx-", spans=[(0, 5, "good"), (7, 11, "bad")])
    other = label(queue, bob, "gx-", spans=[(0, 5, "good")])
    version = frozen(dataset_of(team, owner, queue, form=Form.STEPWISE))
    row = version.rows.get()
    assert row.labellers == sorted([ann.pk, bob.pk])
    assert row.rollouts == list(one.item.rollouts)
    told = row.provenance
    assert told["judgements"] == [one.pk, other.pk]
    assert [(step["agreement"], step["marks"]) for step in told["steps"]] == [
        (1.0, {str(ann.pk): "good", str(bob.pk): "good"}),
        (1.0, {str(ann.pk): "bad", str(bob.pk): "bad"}),
    ]
    assert told["of"] == 3
    assert told["spans"] == [
        {"start": 0, "end": 5, "mark": "good", "text": "First", "labellers": [ann.pk, bob.pk]},
        {"start": 7, "end": 11, "mark": "bad", "text": "Then", "labellers": [ann.pk]},
    ]
    assert told["sides"]["completions"]["rollout"] == one.item.rollouts[0]
    [line] = fetched(as_owner, version, provenance="1").decode().splitlines()
    assert json.loads(json.loads(line)["provenance"]) == told


@pytest.mark.feature(100)
@pytest.mark.parametrize("form", [Form.KTO, Form.COMPLETION])
def test_spans_go_with_rows_of_other_forms_too(team: Team, owner: User, ann: User, form: Form) -> None:
    queue = queue_with(team, steps=False)
    label(queue, ann, "", spans=[(0, 5, "good")])
    version = frozen(dataset_of(team, owner, queue, form=form))
    assert version.rows.get().provenance["spans"] == [{"start": 0, "end": 5, "mark": "good", "text": "First", "labellers": [ann.pk]}]
    assert json.loads(version.path().read_text())["completion_spans"] == [{"start": 0, "end": 5, "label": "good", "text": "First"}]


def test_the_same_labels_give_the_same_bytes_in_both_files(team: Team, owner: User, ann: User, as_owner: Client) -> None:
    queue = queue_with(team, *(answer(group, prompt=[Message("user", f"What is {group}?")]) for group in range(8)))
    for _ in range(8):
        label(queue, ann, "ggx")
    dataset = dataset_of(team, owner, queue, form=Form.STEPWISE)
    first, second = frozen(dataset, test_share=0.5), frozen(dataset, test_share=0.5)
    assert first.digest == second.digest
    assert first.counts["train"]
    assert first.counts["test"]
    assert first.counts["train"] + first.counts["test"] == 8
    for split in ("train", "test"):
        own = fetched(as_owner, first, split=split)
        assert own == first.path(split).read_bytes()
        table = pq.read_table(io.BytesIO(fetched(as_owner, first, split=split, format="parquet")))  # type: ignore[no-untyped-call]
        assert table.to_pylist() == [json.loads(line) for line in own.splitlines()]
        assert [str(field.type) for field in table.schema] == ["string", "list<element: string>", "list<element: bool>"]


def test_duplicates_go_once_and_contradictions_go(team: Team, ann: User) -> None:
    queue = queue_with(team, answer(0), answer(1), answer(2, ("First.", "Else.")))
    for marks in ("ggg", "ggg", "gx"):
        label(queue, ann, marks)
    assert [row["labels"] for row in rows(team, ann, queue)] == [[True, True, True], [True, False]]  # after the same step another one
    other = queue_with(team, answer(0), answer(1), answer(2, ("Alone.", "So.")))
    for marks in ("ggg", "gxg", "gg"):
        label(other, ann, marks)
    found = preview_next_version(dataset_of(team, ann, other, form=Form.STEPWISE), DatasetRule(queues=(other.pk,)))
    assert [one.row["completions"][0] for one in found.rows] == ["Alone."]
    assert found.left_out["contradictions"] == 2
    assert found.contradictions == [sorted(other.items.order_by("place").values_list("pk", flat=True)[:2])]
    assert len(rows(team, ann, other, dedupe=False)) == 3


def test_what_an_environment_said_ends_the_row(team: Team, ann: User) -> None:
    turns = [Turn("assistant", 0, 7), Turn("tool", 7, 13), Turn("assistant", 13, 18)]
    queue = queue_with(team, answer(turns=turns))
    label(queue, ann, "ggg")
    [row] = rows(team, ann, queue)
    assert row["completions"] == ["First."]


def test_a_changed_step_is_a_change_of_its_row(team: Team, owner: User, ann: User, as_owner: Client) -> None:
    queue = queue_with(team)
    item = label(queue, ann, "ggg").item
    version = frozen(dataset_of(team, owner, queue, form=Form.STEPWISE))
    settlement.decide_queue_item(item, owner, said(item, "ggx"), [0])
    page = as_owner.get(reverse("version-diff", args=[version.pk]), {"against": "now"})
    assert (page.context["changes"]["changed"], page.context["total"]) == (1, 1)
    assert "− wrong" in page.content.decode()
    assert "1 row" in as_owner.get(reverse("version-since", args=[version.pk])).content.decode()


def test_a_recalled_labeller_flags_the_version(team: Team, owner: User, ann: User, bob: User) -> None:
    queue = queue_with(team, overlap=2)
    label(queue, ann, "ggg")
    label(queue, bob, "---", spans=[(0, 5, "bad")])  # marks a span alone
    version = frozen(dataset_of(team, owner, queue, form=Form.STEPWISE))
    recall = Recall.objects.create(team=team, kind=RecallKind.LABELLER, labeller=bob, reason="x")
    assert flags_of([version]) == {version.pk: [recall]}


def test_pages_show_steps_as_text(team: Team, owner: User, ann: User, as_owner: Client) -> None:
    queue = queue_with(team, answer(texts=(SCRIPT, "Then.")))
    label(queue, ann, "gx", spans=[(0, len(SCRIPT), "bad")])
    dataset = dataset_of(team, owner, queue, form=Form.STEPWISE)
    version = frozen(dataset)
    for address in (reverse("version", args=[version.pk]), reverse("dataset-preview", args=[dataset.pk]), reverse("dataset", args=[dataset.pk])):
        page = as_owner.get(address)
        assert page.status_code == 200
        assert SCRIPT not in page.content.decode()
    page = as_owner.get(reverse("version", args=[version.pk])).content.decode()
    for words in ("+ right", "− wrong", "2 of 2 steps", "1 marked span", "As good: only bad marks make a step wrong"):
        assert words in page
    assert 'name="neutral"' in as_owner.get(reverse("dataset", args=[dataset.pk])).content.decode()


def test_the_form_of_the_rule_takes_the_choice(team: Team, owner: User, ann: User, as_owner: Client) -> None:
    queue = queue_with(team)
    label(queue, ann, "gn-")
    dataset = dataset_of(team, owner, queue, form=Form.STEPWISE)
    sent = {"rule": "1", "queues": str(queue.pk), "neutral": "bad", "test_share": "0", "finished_only": "on"}
    as_owner.post(reverse("dataset-freeze", args=[dataset.pk]), sent)
    version = dataset.versions.get()
    build_version(version.pk)
    assert json.loads(Version.across_teams.get().path().read_text())["labels"] == [True, False]
    assert as_owner.post(reverse("dataset-freeze", args=[dataset.pk]), {**sent, "neutral": "maybe"}).status_code == 422
    assert dataset.versions.count() == 1


def test_rules_that_cannot_work_are_refused() -> None:
    with pytest.raises(RuleError, match="neutral"):
        DatasetRule.read({"neutral": "maybe"})
    with pytest.raises(RuleError, match="corrections"):
        DatasetRule.read({"form": "stepwise", "corrections": "use"})
    with pytest.raises(RuleError, match="cleaning"):
        DatasetRule.read({"form": "stepwise", "cleaning": {"by": ["speed"]}})


def test_a_dataset_of_steps_wants_a_queue_that_asks_for_them(team: Team, owner: User, as_owner: Client) -> None:
    without, asking = queue_with(team, steps=False), queue_with(team)
    sent = {"name": "Steps", "form": "stepwise"}
    refused = as_owner.post(reverse("dataset-new"), {**sent, "queue": [without.pk]})
    assert refused.status_code == 422
    assert "step marks" in refused.content.decode()
    assert as_owner.post(reverse("dataset-new"), {**sent, "queue": [without.pk, asking.pk]}).status_code == 302
    assert Dataset.across_teams.get().form == Form.STEPWISE


def test_no_trainer_takes_it_and_the_page_says_what_to_do(team: Team, owner: User, ann: User, as_owner: Client) -> None:
    queue = queue_with(team)
    label(queue, ann, "ggx")
    version = frozen(dataset_of(team, owner, queue, form=Form.STEPWISE))
    address = reverse("version-train", args=[version.pk])
    page = as_owner.get(address)
    assert page.status_code == 200
    assert "Training on marked steps is not supported yet" in page.content.decode()
    assert reverse("version-export", args=[version.pk]) in page.content.decode()
    assert as_owner.post(address, {"trainer": "dpo"}).status_code == 422
    stranger = make_member("else@example.org", Team.objects.create(name="Elsewhere", slug="elsewhere"), Role.OWNER)
    client = Client()
    client.force_login(stranger)
    assert client.get(address).status_code == 404


def test_migrations_are_complete(db: None) -> None:
    call_command("makemigrations", "datasets", check=True, dry_run=True, verbosity=0)
