"""A round of a procedure as the batch that methods see, the events that report it, and its metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from trainers.adapters.rollouts import character_ends
from trainers.attempt.telemetry import Pieces, Scored, build_rollout_event
from trainers.contract.events import AnyEvent, Message
from trainers.methods.batch import RolloutBatch
from trainers.methods.stack import Stack
from trainers.policies.sampling import Completion
from trainers.rollouts.record import record_nodes
from trainers.tasks.base import Example

if TYPE_CHECKING:
    from trainers.adapters.procedure import ProcedureRun


@dataclass(frozen=True)
class Round:
    """B rows, G adjacent ones for each prompt. ``numbers``: of the examples among those of the run. ``totals``: weighted sums of ``scores``."""

    step: int
    group_size: int
    numbers: Sequence[int]
    examples: Sequence[Example]
    prompts: Sequence[Sequence[Message]]
    made: Sequence[Completion]
    scores: Sequence[dict[str, float | None]]
    totals: Sequence[float | None]


def build_round_batch(played: Round, run: ProcedureRun) -> RolloutBatch:
    """What ``observe`` is given."""
    made, names = played.made, list(run.attempt.weights)
    width = max(len(one.ids) for one in made)
    pad = run.attempt.policy.tokenizer.pad_token_id
    nan = float("nan")
    scores = [[nan if (value := score.get(name)) is None else value for name in names] for score in played.scores]
    reward = torch.tensor([total or 0.0 for total in played.totals])
    return RolloutBatch(
        examples=list(played.examples),
        example_ids=list(played.numbers),
        prompts=[list(prompt) for prompt in played.prompts],
        texts=[one.text for one in made],
        ids=torch.tensor([[*one.ids, *[pad] * (width - len(one.ids))] for one in made]),
        mask=torch.tensor([[*one.mask, *[0] * (width - len(one.mask))] for one in made], dtype=torch.float32),
        ends=character_ends(run.attempt.pieces, [one.ids for one in made], [one.text for one in made]),
        finished=torch.tensor([one.finish_reason != "length" for one in made]),
        reward_names=names,
        rewards=torch.tensor(scores),
        reward=reward,
        shaped=reward,
        group_size=played.group_size,
        step=played.step,
        total_steps=run.total,
        max_tokens=run.training.max_completion_length,
        seed=run.attempt.spec.seed,
        prompt_ids=[list(one.prompt_ids) for one in made],
        notes=[one.notes for one in made],
    )


def build_round_events(played: Round, pieces: Pieces, stamp: dict[str, Any]) -> list[AnyEvent]:
    """The rollouts of a round, with the trees behind them. Runs on the writer's thread."""
    rows = [one.row for one in played.made if one.row is not None]
    events: list[AnyEvent] = []
    for place, (one, example) in enumerate(zip(played.made, played.examples, strict=True)):
        several = len(one.turns) > 1
        scored = Scored(
            step=played.step,
            phase="train",
            group=place // played.group_size,
            sample=place % played.group_size,
            prompt=played.prompts[place],
            reference=example.reference,
            text=one.text,
            rewards=played.scores[place],
            reward=played.totals[place],
            finish_reason=one.finish_reason,
            ids=one.ids,
            mask=one.mask if several or not all(one.mask) else (),
            turns=one.turns if several else [],
            nodes=record_nodes(one.row, rows) if one.row is not None else [],
        )
        events.append(build_rollout_event(scored, np.asarray(one.logprobs, np.float32), np.asarray(one.entropies, np.float32), pieces, stamp))
    return events


def compute_round_metrics(played: Round, batch: RolloutBatch, stack: Stack, tokens: int) -> dict[str, float | None]:
    """``tokens``: written in the round, whatever became of them. Flips are shares of the prompts that had an earlier round."""
    lengths = batch.lengths
    values: dict[str, float | None] = {
        "reward": float(batch.reward.mean()),
        "procedure/accuracy": float(batch.correct.float().mean()),
        "procedure/tokens": float(tokens),
        "procedure/tokens_per_answer": tokens / len(played.made),
        "completions/mean_length": float(lengths.mean()),
        "completions/max_length": float(lengths.max()),
        "completions/clipped_ratio": float((~batch.finished).float().mean()),
    }
    for place, name in enumerate(batch.reward_names):
        known = batch.rewards[:, place][~batch.rewards[:, place].isnan()]
        values[f"rewards/{name}/mean"] = float(known.mean()) if len(known) else None
    store = stack.context.store
    if store.lists:
        values["procedure/store"] = float(sum(store.size(name) for name in store.lists))
    return values | count_flips(batch, stack)


def count_flips(batch: RolloutBatch, stack: Stack) -> dict[str, float | None]:
    """Of the prompts seen in an earlier round, the shares whose answers went from mostly right to mostly wrong, and the other way."""
    assert stack.history is not None
    before = stack.history.visits
    after = batch.grouped(batch.correct.double()).mean(1).tolist()
    pairs = [
        (before[number][-1].accuracy > 0.5, share > 0.5)
        for number, share in zip(batch.example_ids[:: batch.group_size], after, strict=True)
        if number in before
    ]
    if not pairs:
        return {}
    return {
        "procedure/right_to_wrong": sum(was and not now for was, now in pairs) / len(pairs),
        "procedure/wrong_to_right": sum(now and not was for was, now in pairs) / len(pairs),
    }
