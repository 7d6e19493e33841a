"""Whole stacks on a few preference pairs, without training: the rows that are left to train on, and their loss under a tiny policy."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from tests.trainers.methods.stacks import UNPREPARED, SmallRun, small_run
from trainers.adapters.dpo import method_loss, sum_token_ratios
from trainers.data import pair_rows
from trainers.methods import registry
from trainers.methods.base import Base, Method
from trainers.methods.batch import PairBatch
from trainers.methods.stack import Stack
from trainers.policies.sampling import as_rows

PAIRS = 6
FLIPPED = (1, 4)  # rows whose sides are the wrong way round
SETTINGS: dict[str, dict[str, Any]] = {"orthalign": {"earlier": "unused"}, "humanline": {"lowest": -0.01, "highest": 0.01}}


@cache
def run_on_pairs() -> SmallRun:
    return small_run("dpo")


@cache
def plain_rows() -> list[dict[str, Any]]:
    run, made = run_on_pairs(), []
    for place, example in enumerate(run.task.examples("pairs", PAIRS, run.seed, "easy")):
        wrong = f"{place}+1=9"
        sides = [run.task.gold(example), f"<think>{wrong}</think><answer>{place + 50}</answer>"]
        chosen, rejected = sides[::-1] if place in FLIPPED else sides
        answers = {"chosen": pair_rows.to_answer_messages(chosen), "rejected": pair_rows.to_answer_messages(rejected)}
        span = {"start": len("<think>"), "end": len("<think>") + len(wrong), "label": "bad", "text": wrong}
        marked = {"chosen_spans" if place in FLIPPED else "rejected_spans": [span]}
        made.append({"prompt": as_rows(example.prompt), **answers, **marked, "strength": float(place)})
    return made


def stack_on_pairs(names: Sequence[str], settings: dict[str, dict[str, Any]]) -> Stack:
    made: list[Method] = []
    for name in names:
        kind = registry.load_method_class(name)
        made.append(kind(kind.Config.model_validate(SETTINGS.get(name, {}) | settings.get(name, {}))))
    base = next((one for one in made if isinstance(one, Base)), None) or registry.load_method_class("dpo")()
    assert isinstance(base, Base)
    return Stack(base, [one for one in made if one is not base])


@dataclass
class PairOutcome:
    numbers: Tensor  # (n,) loss, its gradient along two directions, and how many rows there are
    rows: list[dict[str, Any]]
    batch: PairBatch
    gradients: tuple[Tensor, Tensor]  # (B, T) with respect to the token log-probabilities of chosen and rejected

    def differs(self, other: "PairOutcome") -> bool:
        return not torch.allclose(self.numbers, other.numbers, rtol=1e-5, atol=1e-8)


def outcome_on_pairs(names: Sequence[str], settings: dict[str, dict[str, Any]] | None = None) -> PairOutcome:
    """The stack on the rows: every ``data`` hook, then one batch of all that is left."""
    run, stack = copy.copy(run_on_pairs()), stack_on_pairs(names, settings or {})
    stack.run = run
    for method in stack.methods:
        if method.card.name not in UNPREPARED:
            method.prepare(run)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        rows = stack.data(copy.deepcopy(plain_rows()))[:24]
        batch = batch_of(run, rows)
        loss = method_loss(stack, batch, lambda score: -logsigmoid(score))
    gradients = torch.autograd.grad(loss, (batch.chosen_logprobs, batch.rejected_logprobs))
    seen = [float((one * torch.linspace(1, 2, one.shape[1])).norm()) for one in gradients]
    return PairOutcome(torch.tensor([float(loss.detach()), *seen, float(len(rows))]), rows, batch, (gradients[0], gradients[1]))


def batch_of(run: SmallRun, rows: list[dict[str, Any]]) -> PairBatch:
    """Token tensors hold the answers alone; the prompt of a row is the same on both sides."""
    found: dict[str, Tensor] = {}
    for side in ("chosen", "rejected"):
        pairs = [pair_rows.token_ids(run, row, side) for row in rows]
        with torch.no_grad():
            logprobs, mask = run.logprobs([before for before, _ in pairs], [after for _, after in pairs])
            reference, _ = run.logprobs([before for before, _ in pairs], [after for _, after in pairs], run.reference)
        ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(after) for _, after in pairs], batch_first=True)
        found |= {f"{side}_ids": ids, f"{side}_mask": mask, f"{side}_logprobs": logprobs.requires_grad_(), f"{side}_reference": reference}
    return PairBatch(rows=rows, indices=list(range(len(rows))), beta=0.5, step=1, total_steps=4, reduce=sum_token_ratios, **found)
