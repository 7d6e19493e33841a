"""What a GRPO or RLOO trainer of TRL samples and computes anyway: looked at as it passes, never changed.

Three methods of the trainer are wrapped: the one that samples and scores a batch, the loss, and the one inside the loss that computes
log-probabilities and entropies. A row number travels with each completion, because TRL shuffles them in between. Whatever goes wrong in here
is logged once and costs rollouts, never training.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trainers.attempt.telemetry import Pieces, Scored, build_rollout_event
from trainers.contract import arrays
from trainers.contract.events import AnyEvent, Message
from trainers.maths.weighted_sums import weighted_sum

log = logging.getLogger(__name__)

ROW = "lab_row"
UNSCORED = "no reward function had an opinion on it"
Array = npt.NDArray[Any]


@dataclass
class ObservedCompletion:
    """One completion of T tokens, and what the loss has said of them so far."""

    scored: Scored
    logprobs: Array | None = None
    entropies: Array | None = None
    sampler: Array | None = None  # log-probabilities that the sampler reported (TRL with vLLM or a rollout function)


class Observer:
    """``emit`` takes a function that builds the events of finished rollouts; the spool's thread calls it."""

    def __init__(self, trainer: Any, emit: Callable[[Callable[[], list[AnyEvent]]], None], stamp: Callable[[], dict[str, Any]]) -> None:
        self.trainer, self.emit, self.stamp = trainer, emit, stamp
        self.pieces = Pieces(getattr(trainer.processing_class, "tokenizer", trainer.processing_class))
        self.waiting: dict[int, ObservedCompletion] = {}
        self.next_row = 0
        self.rows: list[int] = []  # of the batch whose loss is being computed
        self.groups: dict[tuple[str, int], int] = {}  # groups seen of a phase and step
        self.broken = False
        trainer._generate_and_score_completions = self.around_sampling(trainer._generate_and_score_completions)
        trainer._compute_loss = self.around_loss(trainer._compute_loss)
        trainer._get_per_token_logps_and_entropies = self.around_statistics(trainer._get_per_token_logps_and_entropies)

    def around_sampling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def sample(inputs: Any, *args: Any, **kwargs: Any) -> Any:
            output = original(inputs, *args, **kwargs)
            self.safely(self.sampled, inputs, output)
            return output

        return sample

    def around_loss(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def loss(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            self.rows = inputs[ROW].tolist() if ROW in inputs else []
            try:
                return original(model, inputs, *args, **kwargs)
            finally:
                self.rows = []

        return loss

    def around_statistics(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def statistics(*args: Any, **kwargs: Any) -> Any:
            found = original(*args, **kwargs)
            if self.rows and found[1] is not None:
                self.safely(self.computed, found[0], found[1])
            return found

        return statistics

    def safely(self, what: Callable[..., None], *given: Any) -> None:
        if self.broken:
            return
        try:
            what(*given)
        except Exception:
            self.broken = True
            log.exception("rollouts can no longer be read from %s; its metrics go on", type(self.trainer).__name__)

    def sampled(self, inputs: Sequence[Mapping[str, Any]], output: dict[str, Any]) -> None:
        """``output`` holds completion_ids and completion_mask (B, T) and advantages (B,) of this process; row numbers are added to it."""
        import torch

        self.flush()
        ids, mask = output["completion_ids"].cpu().numpy(), output["completion_mask"].cpu().numpy().astype(bool)
        count, logs = len(ids), self.trainer._logs
        newest = -count * self.trainer.accelerator.num_processes  # the logs hold all processes' rows, this one's (the first's) first
        texts, prompts = list(logs["completion"])[newest:][:count], list(logs["prompt"])[newest:][:count]
        scores = {name: list(values)[newest:][:count] for name, values in logs["rewards"].items()}
        advantages = output["advantages"].float().reshape(count, -1).mean(1).tolist()
        weights = dict(zip(scores, self.trainer.reward_weights.tolist(), strict=False))
        training = self.trainer.model.training
        phase, step = ("train", self.trainer.state.global_step + 1) if training else ("heldout", self.trainer.state.global_step)
        size = self.trainer.num_generations if training else getattr(self.trainer, "num_generations_eval", self.trainer.num_generations)
        told = output["sampling_per_token_logps"].float().cpu().numpy() if output.get("sampling_per_token_logps") is not None else None  # (B, T)
        first = self.groups.get((phase, step), 0)
        self.groups = {(phase, step): first + -(-count // size)}
        for row in range(count):
            own = ids[row][mask[row]].tolist()
            score = {name: to_finite_number(values[row]) for name, values in scores.items()}
            scored = Scored(
                step=step,
                phase=phase,  # type: ignore[arg-type]
                group=first + row // size,
                sample=row % size,
                prompt=to_prompt_messages(prompts[row]),
                reference=str(inputs[row].get("answer") or inputs[row].get("solution") or "") if row < len(inputs) else "",
                text=content_to_text(texts[row]),
                rewards=score,
                reward=weighted_sum(score, weights),
                advantage=advantages[row],
                finish_reason="stop" if own and own[-1] in self.ends() else "length",
                ids=own,
                filtered="" if any(value is not None for value in score.values()) else UNSCORED,
            )
            self.waiting[self.next_row + row] = ObservedCompletion(scored, sampler=None if told is None else told[row][mask[row]])
        output[ROW] = torch.arange(self.next_row, self.next_row + count, device=output["completion_ids"].device)
        self.next_row += count

    def ends(self) -> set[int]:
        end = getattr(self.trainer.model.generation_config, "eos_token_id", None)
        return {*(end if isinstance(end, list) else [end]), self.pieces.tokenizer.eos_token_id}

    def computed(self, logprobs: Any, entropies: Any) -> None:
        """(B, T) of the rows whose loss is being computed; the first pass over a completion is the one that is kept."""
        logprobs, entropies = logprobs.detach().float().cpu().numpy(), entropies.detach().float().cpu().numpy()
        for place, row in enumerate(self.rows):
            one = self.waiting.get(row)
            if one is not None and one.logprobs is None:
                length = len(one.scored.ids)
                one.logprobs, one.entropies = logprobs[place, :length], entropies[place, :length]
        if all(one.logprobs is not None for one in self.waiting.values()):
            self.flush()

    def flush(self) -> None:
        """Hands over what was sampled; a completion the loss never saw has no statistics."""
        done, self.waiting = list(self.waiting.values()), {}
        if done:
            stamp = self.stamp()
            self.emit(lambda: [self.event(one, stamp) for one in done])

    def event(self, one: ObservedCompletion, stamp: dict[str, Any]) -> AnyEvent:
        empty = np.full(len(one.scored.ids), np.nan, np.float32)
        logprobs, entropies = (empty if values is None else values for values in (one.logprobs, one.entropies))
        more = {} if one.sampler is None else {"sampler_logprobs": arrays.pack_array(one.sampler, "f")}
        return build_rollout_event(one.scored, logprobs, entropies, self.pieces, stamp, **more)


def to_finite_number(value: Any) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def to_prompt_messages(prompt: Any) -> list[Message]:
    if isinstance(prompt, str):
        return [Message("user", prompt)]
    return [Message(str(one.get("role", "user")), content_to_text(one.get("content"))) for one in prompt]


def content_to_text(content: Any) -> str:
    """A completion or a message's content as text; parts that are no text are left out."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(content_to_text(part.get("content", part.get("text", ""))) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)
