"""Preference pairs as token ids for a steering vector: split by prompt, and measured under a steered policy."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.maths.reduce import masked_row_mean
from trainers.policies.steering_vector import Answer, steer_layer

if TYPE_CHECKING:
    from trainers.methods.context import RunContext

AT_ONCE = 64  # answers in one forward pass


@dataclass(frozen=True)
class AnswerPair:
    """``prompt``: its text, by which pairs are split."""

    prompt: str
    chosen: Answer
    rejected: Answer


@dataclass(frozen=True)
class PairLikelihood:
    """``preference``: share of pairs whose chosen answer is likelier a token. ``log_perplexity``: of the chosen answers, nats a token."""

    preference: float
    log_perplexity: float


def split_by_prompt(pairs: Sequence[AnswerPair], share: float, rng: random.Random) -> tuple[list[AnswerPair], list[AnswerPair]]:
    """(the others, those of a ``share`` of the prompts, one prompt at least), each in an order drawn by ``rng``; no prompt is on both sides."""
    prompts = sorted({pair.prompt for pair in pairs})
    held = set(rng.sample(prompts, min(len(prompts), max(1, round(share * len(prompts))))))
    order = rng.sample(list(pairs), len(pairs))
    return [pair for pair in order if pair.prompt not in held], [pair for pair in order if pair.prompt in held]


def compare_likelihoods(chosen: Tensor, rejected: Tensor) -> float:
    """(N,), (N,) mean log-probabilities a token -> share of pairs in the right order; equal ones count half."""
    return float(((chosen > rejected).float() + 0.5 * (chosen == rejected).float()).mean())


@torch.no_grad()
def measure_pairs(run: "RunContext", pairs: Sequence[AnswerPair], layer: int, vector: Tensor, alpha: float) -> PairLikelihood:
    """Answers are scored as they would be written: steered from the last token of the prompt on."""
    chosen, rejected = (score_answers(run, [getattr(pair, side) for pair in pairs], layer, vector, alpha) for side in ("chosen", "rejected"))
    tokens = sum(len(ids) - begin for ids, begin in (pair.chosen for pair in pairs))
    means = [torch.cat([masked_row_mean(values, mask) for values, mask in side]) for side in (chosen, rejected)]
    total = sum(float((values * mask).sum()) for values, mask in chosen)
    return PairLikelihood(compare_likelihoods(*means), -total / tokens)


def score_answers(run: "RunContext", answers: Sequence[Answer], layer: int, vector: Tensor, alpha: float) -> list[tuple[Tensor, Tensor]]:
    """Of each ``AT_ONCE`` answers the log-probabilities (B, T) of their tokens under the steered policy, and their mask."""
    found = []
    for start in range(0, len(answers), AT_ONCE):
        some = answers[start : start + AT_ONCE]
        starts = torch.tensor([begin - 1 for _, begin in some])
        with steer_layer(run.model, layer, vector, alpha, starts):
            found.append(run.logprobs([ids[:begin] for ids, begin in some], [ids[begin:] for ids, begin in some], run.model))
    return found
