"""Runs that change no weights: rounds of sampling whose method decides what is asked and what is kept beside the policy.

Nothing of TRL or transformers' Trainer is used. A round draws its prompts (``curriculum``), words them (``prompts``), has them answered
(``rollout``), scores the answers and shows them to the methods (``observe``). The random numbers of a round hang on seed and round alone, and what is
kept from round to round is in the methods' state and the run's store, so that a resumed run goes on exactly; both are in every checkpoint, beside the
policy's own files, which are those that the run started from.

Held-out prompts are answered by the policy alone before the first round, and by the procedure later: its method answers them in a session that it may
not learn from (``Session.learns``), and whatever it kept is put back afterwards.
"""

import copy
import json
import random
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from trainers.adapters.resumable import COUNTERS, METHODS, NAME, PARTIAL, TRAINING, make_empty_folder, publish_checkpoint, step_of
from trainers.adapters.rounds import Round, build_round_batch, build_round_events, compute_round_metrics
from trainers.attempt.callbacks import LINE_SECONDS, log
from trainers.attempt.context import BESIDE, Attempt
from trainers.attempt.edits import Edits
from trainers.attempt.evaluate import HeldOut, own_randomness
from trainers.contract.hyperparameters import Procedure
from trainers.contract.problems import Problem, SpecError
from trainers.data.datasets import PAIRS_UNREAD, is_bare_pair
from trainers.judges import rewards
from trainers.methods.batch import RolloutBatch
from trainers.methods.history import History, Visit
from trainers.methods.session import Session
from trainers.methods.stack import Stack
from trainers.policies.loading import link_policy
from trainers.policies.sampling import Completion
from trainers.tasks.base import Example

SHOWN = ("procedure/accuracy", "reward", "procedure/tokens")


class ProcedureRun:
    """Has what an attempt asks of a trainer."""

    def __init__(self, attempt: Attempt, examples: list[Example], heldout: HeldOut | None, stack: Stack) -> None:
        assert isinstance(attempt.spec.training, Procedure)
        if any(is_bare_pair(example) for example in examples):
            path = attempt.spec.dataset.path if attempt.spec.dataset else ""
            raise SpecError([Problem("dataset.path", path, *PAIRS_UNREAD)])
        self.attempt, self.examples, self.heldout, self.stack = attempt, examples, heldout, stack
        self.edits: Edits | None = None
        self.model = attempt.policy.model.eval().requires_grad_(False)
        self.steps_done = 0
        self.line_time = 0.0
        stack.history = History(len(examples), self.total)

    @property
    def total(self) -> int:
        return self.attempt.spec.training.max_steps

    @property
    def training(self) -> Procedure:
        """As it holds now."""
        assert isinstance(self.attempt.training, Procedure)
        return self.attempt.training

    # Rounds.

    def train_to_end(self, resume: Path | None) -> None:
        """Rounds up to the last one, or to a stop; a checkpoint is whole, and stops are between rounds."""
        if resume is not None:
            self.restore(resume)
        reporter, limits = self.attempt.reporter, self.attempt.spec.limits
        reporter.phase("training", self.steps_done, self.total)
        while self.steps_done < self.total:
            self.play_round(self.steps_done + 1)
            last = self.steps_done >= self.total
            if self.heldout is not None and self.heldout.due(self.steps_done, self.total):
                self.measure_heldout(self.steps_done)
            stop = not last and self.attempt.stop.requested()
            if last or stop or self.steps_done % limits.save_every == 0:
                self.save_checkpoint()
            reporter.phase("training", self.steps_done, self.total)
            if stop:
                break

    def play_round(self, step: int) -> None:
        if self.edits is not None:
            self.edits.begin_step(step, self)
        began, written = time.perf_counter(), self.stack.context.written_tokens
        with torch.no_grad(), own_randomness(self.draw_seed("round", step), self.attempt.policy.device):
            played = self.sample_round(step)
            batch = build_round_batch(played, self)
            for method in self.stack.filling("observe"):
                method.observe(batch)
        tokens = self.stack.context.written_tokens - written
        self.report(played, compute_round_metrics(played, batch, self.stack, tokens), time.perf_counter() - began, tokens)
        self.remember(batch)
        self.steps_done = step

    def sample_round(self, step: int) -> Round:
        training = self.training
        group, count = training.num_generations, training.prompts_per_batch()
        numbers = self.stack.draw_examples(count, step, "procedure") or pick_in_order(len(self.examples), count, step, self.attempt.spec.seed)
        rows = [number for number in numbers for _ in range(group)]
        session = self.open_session([self.examples[number] for number in rows], step, group)
        self.word_prompts(session)
        made = self.answer(session)
        known = {id(self.examples[number]): number for number in rows}
        rows = [known.get(id(example), number) for example, number in zip(session.examples, rows, strict=True)]  # a method may ask another one
        scores = self.score(session.examples, made, step)
        sums = [rewards.weighted_sum(score, self.attempt.weights) for score in scores]
        return Round(step, group, rows, session.examples, session.prompts, made, scores, sums)

    def open_session(self, examples: list[Example], step: int, group: int, learns: bool = True) -> Session:
        return Session(
            run=self.stack.context,
            model=self.model,
            examples=list(examples),
            prompts=[list(example.prompt) for example in examples],
            group_size=group,
            step=step,
            total_steps=self.total,
            temperature=self.training.temperature,
            max_tokens=self.training.max_completion_length,
            rng=random.Random(self.draw_seed("rollout" if learns else "heldout", step)),
            learns=learns,
        )

    def word_prompts(self, session: Session) -> None:
        """What methods make of the prompts, member by member."""
        group = session.group_size
        for method in self.stack.filling("prompts"):
            for start in range(0, len(session.examples), group):
                if worded := method.prompts(session.examples[start], group, session.step):
                    session.prompts[start : start + group] = [list(prompt) for prompt in worded]

    def answer(self, session: Session) -> list[Completion]:
        """One completion for each row; of an episode of several contexts the first one. Raises ValueError for another number of them."""
        method = self.stack.one("rollout")
        made = method.rollout(session) if method else session.complete()
        if len(made) != len(session.examples):
            raise ValueError(f"{method.card.name if method else 'the sampler'} made {len(made)} completions of {len(session.examples)}")
        return [session.compile(one)[0] for one in made]

    def score(self, examples: list[Example], made: list[Completion], step: int) -> list[dict[str, float | None]]:
        texts = [(one.text, example) for one, example in zip(made, examples, strict=True)]
        return [score | one.scores for score, one in zip(self.attempt.columns.score_rows(texts, step), made, strict=True)]

    def report(self, played: Round, values: dict[str, float | None], seconds: float, tokens: int) -> None:
        """The round's rollouts, then its metrics."""
        reporter = self.attempt.reporter
        reporter.later(partial(build_round_events, played, self.attempt.pieces, reporter.stamp()))
        values |= {"speed/step_seconds": seconds, "speed/tokens_per_second": tokens / max(seconds, 1e-9), **self.stack.collect()}
        reporter.metrics(played.step, values, self.stack.context.written_tokens)
        if self.attempt.report_memory is not None and not self.steps_done:
            self.attempt.report_memory()
        if time.monotonic() - self.line_time >= LINE_SECONDS or played.step >= self.total:
            self.line_time = time.monotonic()
            shown = "  ".join(f"{name} {values[name]:.4g}" for name in SHOWN if values.get(name) is not None)
            log.info("round %d of %d  %s  %.3f s", played.step, self.total, shown, seconds)

    def remember(self, batch: RolloutBatch) -> None:
        """Adds the round's groups to the history, which curricula and the count of flips look at."""
        assert self.stack.history is not None
        reward, accuracy = batch.grouped(batch.reward).mean(1).tolist(), batch.grouped(batch.correct.double()).mean(1).tolist()
        for place, (mean, share) in enumerate(zip(reward, accuracy, strict=True)):
            self.stack.history.add(batch.example_ids[place * batch.group_size], Visit(batch.step, mean, share))

    def draw_seed(self, *key: object) -> int:
        return self.stack.context.rng("procedure", *key).randrange(2**31)

    # Held-out prompts.

    def measure_heldout(self, step: int) -> None:
        """Before the first round of the policy alone, later of the procedure."""
        if self.heldout is None:
            return
        with torch.no_grad():
            if step == 0:
                self.heldout.measure(self.model, 0)
            else:
                self.heldout.report(*self.answer_heldout(self.heldout, step))

    def answer_heldout(self, heldout: HeldOut, step: int) -> tuple[list[Completion], int, Mapping[str, float | None]]:
        """One answer to each prompt by the procedure, the step, and further metrics; it keeps nothing of them."""
        kept, written = copy.deepcopy(self.stack.state()), self.stack.context.written_tokens
        examples, width, made = heldout.examples, self.attempt.sampling_batch, list[Completion]()
        with own_randomness(self.attempt.spec.seed, self.attempt.policy.device):
            for start in range(0, len(examples), width):
                self.attempt.reporter.phase("evaluating", start, len(examples))
                session = self.open_session(examples[start : start + width], step, 1, learns=False)
                session.temperature = heldout.how.temperature
                self.word_prompts(session)
                made += self.answer(session)
        more: dict[str, float | None] = {f"heldout/{name}": value for name, value in self.stack.collect().items()}
        more["heldout/written"] = (self.stack.context.written_tokens - written) / len(examples)
        self.stack.restore(kept)
        self.stack.context.written_tokens = written
        return made, step, more

    # Settings, checkpoints, the policy.

    def at_boundary(self) -> bool:
        return True

    def change_settings(self, changes: Mapping[str, float]) -> None:
        known = {name.removeprefix(TRAINING): value for name, value in changes.items() if name.startswith(TRAINING)}
        self.attempt.training = self.attempt.training.model_copy(update=known)

    def save_checkpoint(self) -> None:
        """What the methods keep, the counters, and the files of the policy."""
        step, root = self.steps_done, self.attempt.checkpoints
        self.attempt.reporter.phase("saving")
        partial_folder = root / f"{PARTIAL}{NAME}{step}"
        make_empty_folder(partial_folder)
        link_policy(self.attempt.policy.folder, partial_folder)
        torch.save(self.stack.state(), partial_folder / METHODS)
        (partial_folder / COUNTERS).write_text(json.dumps({"round": step, "written_tokens": self.stack.context.written_tokens}))
        publish_checkpoint(self.attempt, partial_folder, root / f"{NAME}{step}")

    def restore(self, checkpoint: Path) -> None:
        self.steps_done = step_of(checkpoint)
        self.stack.context.written_tokens = json.loads((checkpoint / COUNTERS).read_text())["written_tokens"]
        self.stack.restore(torch.load(checkpoint / METHODS, weights_only=True))

    def collect_shared_weights(self) -> None:
        return None

    def export(self, folder: Path, weights: dict[str, Any] | None) -> None:
        """The policy that the run started from, and beside it what a method has put into the run's folder ``BESIDE``."""
        link_policy(self.attempt.policy.folder, folder)
        if (beside := self.attempt.folder / BESIDE).is_dir():
            link_policy(beside, folder)


def pick_in_order(size: int, count: int, step: int, seed: int) -> list[int]:
    """Numbers of the examples of round ``step`` (from 1): all ``size`` of them once, in an order drawn by ``seed``, then again in another."""
    places = range((step - 1) * count, step * count)
    orders: dict[int, list[int]] = {}
    for epoch in {place // size for place in places}:
        orders[epoch] = random.Random(f"{seed}/procedure/{epoch}").sample(range(size), size)
    return [orders[place // size][place % size] for place in places]
