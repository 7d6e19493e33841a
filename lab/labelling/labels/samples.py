"""Items as a lead looks at them in lists and previews: the start of each text, with what is hidden from labellers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models.functions import Left

from lab.labelling.labels.models import Item
from lab.labelling.labels.new_queues import NewItem
from lab.rollouts.trajectories.models import Prompt, Rollout
from lab.rollouts.trajectories.text_pieces import Piece, iterate_text_pieces

CUT_AT = 400  # characters


@dataclass(frozen=True)
class SampleAnswer:
    """``rollout`` is None for texts of a running trainer that are not stored yet, and for rollouts that are gone."""

    rollout: Rollout | None
    pieces: list[Piece]
    cut: bool


@dataclass(frozen=True)
class ItemSample:
    prompt: list[Piece]
    answers: list[SampleAnswer]
    item: Item | None = None
    gold: bool = False
    repeated: bool = False  # a gold item that is asked again


def of_new(items: Sequence[NewItem]) -> list[ItemSample]:
    texts = load_sample_texts((item.prompt, item.rollouts, item.texts) for item in items)
    return [
        ItemSample(prompt, answers, gold=item.gold is not None, repeated=item.repeats is not None)
        for item, (prompt, answers) in zip(items, texts, strict=True)
    ]


def of_items(items: Sequence[Item]) -> list[ItemSample]:
    texts = load_sample_texts((item.prompt_id, item.rollouts, item.texts) for item in items)
    return [
        ItemSample(prompt, answers, item, item.gold is not None, item.repeats_id is not None)
        for item, (prompt, answers) in zip(items, texts, strict=True)
    ]


def load_sample_texts(items: Iterable[tuple[int, Sequence[int], Sequence[str] | None]]) -> list[tuple[list[Piece], list[SampleAnswer]]]:
    """Prompt and answers of each, in two queries."""
    rows = list(items)
    heads = Rollout.across_teams.defer("completion", "turns", "nodes", "contributions", "shaped").select_related("run").defer("run__spec")
    heads_by_id: dict[int, Any] = heads.annotate(head=Left("completion", CUT_AT + 1)).in_bulk([pk for _, rollouts, _ in rows for pk in rollouts])
    prompts: dict[int, Any] = Prompt.across_teams.only("pk").annotate(head=Left("text", CUT_AT)).in_bulk([prompt for prompt, _, _ in rows])
    sample_texts = []
    for prompt, rollouts, texts in rows:
        answers = [make_sample_answer(heads_by_id.get(pk), heads_by_id[pk].head if pk in heads_by_id else "") for pk in rollouts]
        answers += [make_sample_answer(None, text[: CUT_AT + 1]) for text in texts or ()]
        sample_texts.append((list(iterate_text_pieces(prompts[prompt].head if prompt in prompts else "")), answers))
    return sample_texts


def make_sample_answer(rollout: Rollout | None, head: str) -> SampleAnswer:
    return SampleAnswer(rollout, list(iterate_text_pieces(head[:CUT_AT])), len(head) > CUT_AT)
