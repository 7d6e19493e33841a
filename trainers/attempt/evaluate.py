"""Held-out evaluation: the same prompts, sampled with the same seed, at every measurement; training does not notice that it happened."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trainers.attempt.alternatives import keeps_alternatives
from trainers.attempt.context import Attempt
from trainers.attempt.repeated_answers import compute_repeated_metrics
from trainers.attempt.report import split_nonfinite
from trainers.attempt.telemetry import Pieces, Scored, build_rollout_event
from trainers.contract import spool
from trainers.contract.events import AnyEvent, Metrics
from trainers.contract.hyperparameters import SFT
from trainers.judges import rewards
from trainers.policies.sampling import Completion, Sampler, Sampling, prompt_ids
from trainers.rollouts.record import record_nodes
from trainers.tasks.base import Example

SHORTEST = 8  # tokens that an answer may always have
SampleHeldOut = Callable[[Sequence[Example], Sampling, Callable[[int], None]], list[Completion]]  # told how many are done


@contextmanager
def own_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Seeds Python, numpy and torch inside, and leaves their state outside as it was."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


class HeldOut:
    """The held-out prompts of a run and how they are measured."""

    def __init__(self, attempt: Attempt) -> None:
        spec = attempt.spec
        self.attempt = attempt
        self.examples = attempt.task.examples("heldout", spec.evaluation.prompts, spec.seed, spec.task.difficulty)
        share = spec.telemetry.alternatives_share
        self.watched = [keeps_alternatives(share, spec.seed, "heldout", place) for place in range(len(self.examples))]
        kept = spec.telemetry.alternatives
        self.how = Sampling(spec.evaluation.temperature, self.longest(), attempt.sampling_batch, alternatives=kept)
        self.sampled_by: SampleHeldOut | None = None  # of a task that TRL answers; else the lab's own sampler does

    def longest(self) -> int:
        training = self.attempt.spec.training
        if training.max_completion_length is not None:
            return training.max_completion_length
        assert isinstance(training, SFT)
        return max(SHORTEST, training.max_length - max(len(ids) for ids in prompt_ids(self.attempt.policy.tokenizer, self.examples)))

    def due(self, step: int, total: int) -> bool:
        every = self.attempt.spec.evaluation.every
        return step == total or (every > 0 and step % every == 0)

    def measure(self, model: Any, step: int) -> dict[str, float | None]:
        """Samples the answers to each prompt and reports rollouts and metrics of ``step``; returns the metrics.

        The first answers are the same however many there are; further ones count in metrics of their own alone.
        """
        attempt = self.attempt
        attempt.reporter.phase("evaluating", 0, len(self.examples))
        with own_randomness(attempt.spec.seed, attempt.policy.device):
            rounds = [self.sample(model) for _ in range(attempt.spec.evaluation.samples)]
        return self.report(rounds[0], step, compute_repeated_metrics(attempt.task, self.examples, rounds, self.how.max_tokens))

    def report(self, completions: Sequence[Completion], step: int, more: Mapping[str, float | None] = {}) -> dict[str, float | None]:
        """Scores one answer to each prompt, reports them and their metrics, ``more`` of them included, and returns the metrics."""
        attempt = self.attempt
        answers = [made.text if made.answer is None else made.answer for made in completions]
        scores = attempt.columns.score_rows(list(zip(answers, self.examples, strict=True)), step)
        scores = [score | made.scores for score, made in zip(scores, completions, strict=True)]
        sums = [rewards.weighted_sum(score, attempt.weights) for score in scores]
        together = {f"heldout/{name}": value for name, value in attempt.task.measure_together(self.examples, answers).items()}
        values = compute_heldout_metrics(completions, scores, sums, next(iter(attempt.task.rewards))) | together | dict(more)
        scored = [
            Scored(step=step, phase="heldout", group=place, sample=0, **build_scored_fields(example, made, score, total))
            for place, (example, made, score, total) in enumerate(zip(self.examples, completions, scores, sums, strict=True))
        ]
        attempt.reporter.later(partial(build_measurement_events, scored, completions, attempt.pieces, attempt.reporter.stamp(), values))
        return values

    def sample(self, model: Any) -> list[Completion]:
        """One completion for each example."""

        def progress(done: int) -> None:
            self.attempt.reporter.phase("evaluating", done, len(self.examples))

        if self.sampled_by is not None:
            return self.sampled_by(self.examples, self.how, progress)
        return Sampler(model, self.attempt.policy.tokenizer, self.attempt.task, self.how).complete(self.examples, progress, self.watched)


def build_scored_fields(example: Example, made: Completion, score: dict[str, float | None], total: float | None) -> dict[str, Any]:
    """What a sampled and scored completion says about itself, as arguments of Scored."""
    several = len(made.turns) > 1
    return {
        "prompt": example.prompt if made.asked is None else made.asked,
        "reference": example.reference,
        "text": made.text,
        "rewards": score,
        "reward": total,
        "finish_reason": made.finish_reason,
        "ids": made.ids,
        "mask": made.mask if several else (),
        "turns": made.turns if several else [],
        "nodes": record_nodes(made.row, []) if made.row is not None else [],
        "alternatives": made.alternatives,
        "answer": made.answer,
    }


def build_measurement_events(
    scored: Sequence[Scored], completions: Sequence[Completion], pieces: Pieces, stamp: dict[str, Any], values: dict[str, float | None] | None = None
) -> list[AnyEvent]:
    """Rollouts and, last, their metrics: a reader that sees the metrics has seen all of the measurement."""
    made: list[AnyEvent] = [
        build_rollout_event(one, np.asarray(completion.logprobs, np.float32), np.asarray(completion.entropies, np.float32), pieces, stamp)
        for one, completion in zip(scored, completions, strict=True)
    ]
    if values is not None:
        finite, other = split_nonfinite(values)
        made.append(Metrics(**stamp, step=scored[0].step, values=finite, nonfinite=other))
    return made


def compute_heldout_metrics(
    completions: Sequence[Completion], scores: Sequence[dict[str, float | None]], sums: Sequence[float | None], accuracy: str
) -> dict[str, float | None]:
    """Means over the answers; of a reward function, over those it has an opinion on. Entropy is the mean over the policy's tokens."""
    values = {f"heldout/{name}": average_known([score[name] for score in scores]) for name in scores[0]}
    own = [entropy for made in completions for entropy, mine in zip(made.entropies, made.mask, strict=True) if mine]
    values["heldout/reward"] = average_known(sums)
    values["heldout/accuracy"] = values[f"heldout/{accuracy}"]
    values["heldout/entropy"] = average_known(own)
    values["heldout/length"] = average_known([float(sum(made.mask)) for made in completions])
    return values


def average_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def measured_before_training(path: Path) -> bool:
    """Whether an earlier attempt, which got no further than that, has written the measurement of step 0 already."""
    offset = 0
    while lines := list(spool.read_spool_lines(path, offset)):
        if any(isinstance(line.event, Metrics) and line.event.step == 0 and "heldout/length" in line.event.values for line in lines):
            return True
        offset = lines[-1].end
    return False
