"""From what people mark to token weights: labelled spans in the database, the frozen version, the trainer's rows, the tokens of the tiny policy."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from django.test import Client
from django.urls import reverse

from lab.data.datasets.downstream import flags_of
from lab.data.datasets.freezing import preview_next_version
from lab.data.datasets.marked_text import cut_into_segments, format_answer_text, list_shown_marks
from lab.data.datasets.models import Form, Recall, RecallKind
from lab.data.datasets.rows import make_opposite_row
from lab.labelling.labels import settlement
from lab.labelling.labels.models import Kind, Queue
from lab.labelling.labels.new_queues import NewItem, make_queue
from lab.rollouts.trajectories.models import Rollout, RolloutTokens
from lab.teams.accounts.models import Team, User
from tests.conftest import make_member
from tests.lab.datasets.labelled import dataset_of, judge
from tests.lab.datasets.test_stepwise import SCRIPT, answer, fetched, frozen, label, made_rule, queue_with, said
from tests.lab.supervisor.spools import make_run, started, store
from tests.trainers.methods.batches import token_batch
from tests.trainers.methods.pair_stacks import run_on_pairs
from trainers.contract.events import Turn
from trainers.data import datasets
from trainers.methods.tokens.span_credit import Config, SpanCredit

TEXT = "First.\n\nThen.\n\nLast."
FIRST, THEN = {"start": 0, "end": 5, "label": "good", "text": "First"}, {"start": 8, "end": 12, "label": "bad", "text": "Then"}


@pytest.fixture
def ann(team: Team) -> User:
    return make_member("ann@example.org", team)


@pytest.fixture
def bob(team: Team) -> User:
    return make_member("bob@example.org", team)


def spans_of(team: Team, user: User, *queues: Queue, form: str = Form.COMPLETION, column: str = "completion_spans", **rule: Any) -> Any:
    dataset = dataset_of(team, user, *queues, form=form)
    [row] = preview_next_version(dataset, made_rule(dataset, **rule)).rows
    return [tuple(span.values()) for span in row.row.get(column, [])]


@pytest.mark.feature(100)
def test_marked_spans_become_the_weights_of_the_trainers_tokens(team: Team, owner: User, ann: User) -> None:
    """Tokens of the sampler (one a character, blank lines one) to characters, and on to the tokens of another tokenizer."""
    queue = queue_with(team, steps=False)
    label(queue, ann, "", spans=[(0, 5, "good"), (7, 11, "bad")])
    version = frozen(dataset_of(team, owner, queue, form=Form.COMPLETION))
    assert version.rows.get().row["completion_spans"] == [FIRST, THEN]
    assert version.counts["spans"] == {"rows": 1, "good": 5, "bad": 4}
    [row] = datasets.read_rows(version.path(), "sft")
    run = run_on_pairs()
    method = SpanCredit(Config(supporting=2.0, opposing=0.0))
    method.prepare(run)
    marked = method.tokens_of(row, "completion")
    ids = torch.tensor([marked.ids[1:]])
    mask = (torch.arange(ids.shape[1])[None] >= marked.start - 1).float()
    weights = method.sft_weights(token_batch(torch.zeros(ids.shape), rows=[row], ids=ids, mask=mask))[0].tolist()
    spelt = "".join(run.tokenizer.decode([token]) * (weight == 2.0) for token, weight in zip(ids[0].tolist(), weights, strict=True))
    assert spelt == "First"
    assert "".join(run.tokenizer.decode([token]) for token, weight in zip(ids[0].tolist(), weights, strict=True) if weight == 0.0) == "Then"


@pytest.mark.feature(100)
def test_a_pair_has_the_spans_of_both_its_answers_whichever_queue_they_were_marked_in(team: Team, owner: User, ann: User, bob: User) -> None:
    run = make_run(team)
    store(run, started(), answer(0), answer(1, ("First.", "Else.")))
    better, worse = Rollout.objects.filter(run=run).order_by("group")
    pairs = make_queue(team, None, name="Pairs", kind=Kind.PAIR, items=[NewItem(better.prompt_id, (better.pk, worse.pk))])
    singles = make_queue(team, None, name="Marks", kind=Kind.SINGLE, items=[NewItem(one.prompt_id, (one.pk,)) for one in (better, worse)], spans=True)
    judge(pairs.items.get(), ann, "a")
    label(singles, bob, "", spans=[(0, 5, "good")])
    label(singles, bob, "", choice="bad", spans=[(7, 11, "bad")])
    version = frozen(dataset_of(team, owner, pairs, singles))
    row = version.rows.get()
    assert row.row["chosen_spans"] == [FIRST]
    assert row.row["rejected_spans"] == [{**THEN, "text": "Else"}]
    assert (row.labellers, row.provenance["span_queues"]) == ([ann.pk, bob.pk], [singles.pk])
    opposite = make_opposite_row(row.row)
    assert (opposite["chosen_spans"], opposite["rejected_spans"]) == (row.row["rejected_spans"], row.row["chosen_spans"])
    recall = Recall.objects.create(team=team, kind=RecallKind.QUEUE, queue=singles, reason="x")
    assert flags_of([version]) == {version.pk: [recall]}


def test_a_corrected_answer_leaves_the_spans_with_the_answer_it_corrects(team: Team, ann: User) -> None:
    queue = queue_with(team, steps=False, correction=True)
    judged = label(queue, ann, "", choice="bad", spans=[(7, 11, "bad")])
    judged.correction = "First, then last."
    judged.save()
    [row] = preview_next_version((dataset := dataset_of(team, ann, queue, form=Form.PREFERENCE)), made_rule(dataset, corrections="use")).rows
    assert row.row["rejected_spans"] == [THEN]
    assert "chosen_spans" not in row.row
    assert spans_of(team, ann, queue, corrections="use") == []


@pytest.mark.parametrize(
    ("marks", "rule", "expected"),
    [
        (([(0, 5, "good")], [(0, 5, "good")], [(0, 5, "bad")]), {}, [(0, 5, "good", "First")]),  # two of three
        (([(0, 5, "good")], [(0, 5, "bad")], []), {}, []),  # split
        (([(0, 4, "good")], [(2, 6, "bad")], []), {}, [(0, 2, "good", "Fi"), (4, 6, "bad", "t.")]),  # split where both marked
        (([(0, 4, "good")], [(2, 6, "good")], []), {}, [(0, 6, "good", "First.")]),
        (([(0, 5, "good")], [(0, 5, "good")], [(0, 5, "bad")]), {"min_agreement": 0.7}, []),
    ],
)
def test_who_marks_the_same_tokens_is_counted(
    team: Team, ann: User, bob: User, marks: tuple[list[tuple[int, int, str]], ...], rule: dict[str, Any], expected: list[Any]
) -> None:
    queue = queue_with(team, overlap=3, steps=False)
    for user, spans in zip((ann, bob, make_member("cat@example.org", team)), marks, strict=True):
        label(queue, user, "", spans=spans)
    assert spans_of(team, ann, queue, **rule) == expected


def test_marked_steps_are_spans_and_a_span_decides_over_its_step(team: Team, ann: User) -> None:
    queue = queue_with(team)
    label(queue, ann, "gxn", spans=[(8, 9, "good")])  # tokens: First. is 0 to 5, the blank line 6, Then. 7 to 11
    found = spans_of(team, ann, queue)
    assert [(text.strip(), said_of) for _, _, said_of, text in found] == [("First.", "good"), ("T", "bad"), ("h", "good"), ("en.", "bad")]


def test_an_adjudicated_answers_spans_decide(team: Team, owner: User, ann: User) -> None:
    queue = queue_with(team, steps=False)
    item = label(queue, ann, "", spans=[(0, 5, "good")]).item
    settlement.decide_queue_item(item, owner, said(item, "", spans=[(0, 5, "bad")]), [0])
    assert spans_of(team, owner, queue) == [(0, 5, "bad", "First")]


def test_spans_over_turns_and_letters_of_several_tokens(team: Team, ann: User) -> None:
    turns = [Turn("assistant", 0, 7), Turn("tool", 7, 13), Turn("assistant", 13, 18)]
    queue = queue_with(team, answer(turns=turns), steps=False)
    label(queue, ann, "", spans=[(13, 17, "bad")])
    [(start, end, said_of, text)] = spans_of(team, ann, queue)
    assert (TEXT[start:end], said_of, text) == ("Last", "bad", "Last")


def test_marks_of_an_answer_whose_tokens_are_gone_are_counted_and_the_row_stays(team: Team, ann: User) -> None:
    queue = queue_with(team, steps=False)
    label(queue, ann, "", spans=[(0, 5, "good")])
    RolloutTokens.objects.filter(rollout__run__team=team).delete()
    dataset = dataset_of(team, ann, queue, form=Form.KTO)
    made = preview_next_version(dataset, made_rule(dataset))
    assert made.left_out == {"marked spans of answers whose tokens are not stored": 1}
    assert "completion_spans" not in made.rows[0].row
    assert "spans" not in made.counts()


def test_every_export_keeps_the_spans(team: Team, owner: User, ann: User, as_owner: Client) -> None:
    queue = queue_with(team, answer(0), answer(1, ("Alone.",)), steps=False)
    label(queue, ann, "", spans=[(0, 5, "good"), (7, 11, "bad")])
    label(queue, ann, "")
    version = frozen(dataset_of(team, owner, queue, form=Form.KTO))
    for shape in ("kto", "completion"):
        lines = [json.loads(line) for line in fetched(as_owner, version, shape=shape).splitlines()]
        table = pq.read_table(io.BytesIO(fetched(as_owner, version, shape=shape, format="parquet"))).to_pylist()  # type: ignore[no-untyped-call]
        assert [row.get("completion_spans") for row in lines] == [row["completion_spans"] for row in table] == [[FIRST, THEN], None]
        assert datasets.row_of(table[0], "sft")["completion_spans"] == [FIRST, THEN]
    assert b"_spans" not in fetched(as_owner, version, shape="kto").splitlines()[1]


def test_the_page_counts_and_highlights_them(team: Team, owner: User, ann: User, as_owner: Client) -> None:
    hostile = (f"{SCRIPT} is", "so.")
    queue = queue_with(team, answer(0, hostile), answer(1, ("Alone.",)), steps=False)
    label(queue, ann, "", spans=[(0, 8, "bad")])
    label(queue, ann, "")
    version = frozen(dataset_of(team, owner, queue, form=Form.COMPLETION))
    page = as_owner.get(reverse("version", args=[version.pk]), {"only": "spans"}).content.decode()
    assert '<mark class="marked bad" title="marked bad">&lt;script&gt;</mark>' in page
    assert SCRIPT not in page
    assert "0 good, 8 bad" in page
    assert "Alone." not in page
    preview = as_owner.get(reverse("version", args=[version.pk])).content.decode()
    assert "Alone." in preview


def test_marks_of_a_text_with_other_speakers_are_drawn_where_they_stand() -> None:
    messages = [{"role": "assistant", "content": "ab"}, {"role": "tool", "content": "cd"}, {"role": "assistant", "content": "ef"}]
    shown = format_answer_text(messages)
    assert shown.text == "ab\n\n[tool] cd\n\nef"
    marks = list_shown_marks([{"start": 1, "end": 3, "label": "good"}, {"start": 5, "end": 6, "label": "bad"}], shown.places)
    segments = list(cut_into_segments([(False, shown.text[:1]), (True, shown.text[1:])], marks))
    assert ["".join(piece.text for piece in segment.pieces) for segment in segments if segment.mark] == ["b", "c", "f"]
    assert "".join(piece.text for segment in segments for piece in segment.pieces) == shown.text
    assert [segment.only for segment in segments] == [False, *[True] * (len(segments) - 1)]
