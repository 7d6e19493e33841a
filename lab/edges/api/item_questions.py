"""What an item of a queue asks, as JSON: the prompt and the answers in a given order, with where they come from only where that may be seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ninja import Field, Schema

from lab.edges.api.operations.rollouts import MessageOut
from lab.labelling.labels.claim_view import item_views
from lab.labelling.labels.models import Item, Queue
from lab.labelling.quality.item_display import list_answer_labels
from lab.rollouts.trajectories.models import Prompt, Rollout
from lab.teams.accounts.addresses import build_absolute_url, team_path


class OriginOut(Schema):
    rollout: int
    run: int = Field(description="The run's number.")
    step: int
    reward: float | None
    url: str


class AnswerOut(Schema):
    label: str = Field(description="Name of the answer in texts about the item.", examples=["1"])
    turns: list[MessageOut]
    tokens: int | None
    origin: OriginOut | None = Field(description="null in a blind queue, and for answers that are not rollouts.")


class AskedOut(Schema):
    prompt: list[MessageOut]
    reference: str = Field(description="Empty in a blind queue.")
    answers: list[AnswerOut] = Field(description="Empty when an answer was deleted.")


def asked_of(queue: Queue, items: Sequence[tuple[Item, list[int]]], origins: bool) -> dict[int, dict[str, Any]]:
    """Item → what it asks, its answers in the order that goes with it. ``origins``: with run, step, reward and reference, also in a blind queue."""
    views = item_views(queue, items)
    abouts = origins_of(queue, [item for item, _ in items]) if origins else {}
    prompts = Prompt.objects.filter(team=queue.team_id).in_bulk({item.prompt_id for item, _ in items}) if origins else {}
    questions: dict[int, dict[str, Any]] = {}
    for item, order in items:
        view = views.get(item.pk)
        if view is None:
            questions[item.pk] = {"prompt": [], "reference": "", "answers": []}
            continue
        places = zip(list_answer_labels(queue.kind, len(order)), order, view["answers"], strict=True)
        answers = [
            {
                "label": name,
                "turns": messages_from_turns(view["turns"]),
                "tokens": view["tokens"],
                "origin": abouts.get(item.rollouts[index]) if item.texts is None else None,
            }
            for name, index, view in places
        ]
        reference = prompts[item.prompt_id].reference if origins else view["reference"]
        questions[item.pk] = {"prompt": messages_from_turns(view["prompt"]), "reference": reference, "answers": answers}
    return questions


def messages_from_turns(turns: Sequence[Sequence[str]]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in turns]


def origins_of(queue: Queue, items: Sequence[Item]) -> dict[int, dict[str, Any]]:
    rollouts = {rollout for item in items if item.texts is None for rollout in item.rollouts}
    rows = Rollout.objects.filter(run__team=queue.team, pk__in=rollouts).select_related("run").only("step", "reward", "run__number")
    return {
        row.pk: {
            "rollout": row.pk,
            "run": row.run.number,
            "step": row.step,
            "reward": row.reward,
            "url": build_absolute_url(team_path(queue.team, "rollout", row.pk)),
        }
        for row in rows
    }
