"""Completions that go on from the same beginning: the turns of a task are counted from there, and its world answers where the policy asks it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import GenerationConfig

from trainers.contract.events import Turn
from trainers.policies.sampling import Completion, Sampler, Sampling, TokenStatistics
from trainers.tasks.base import Example, Task

POLICY = "assistant"
REPORT_SECONDS = 0.25
TOKENS_A_SECOND = 16_000  # of all reports together: long ones come less often

Report = Callable[[list[Completion]], None]


class WatchedStatistics(TokenStatistics):
    """``seen`` hears after every token of all that was sampled in this turn: ids (B, T), log-probabilities and entropies of the first T."""

    def __init__(self, temperature: float, seen: Callable[[torch.Tensor, TokenStatistics], None]) -> None:
        super().__init__(temperature)
        self.seen, self.width = seen, -1

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if self.width < 0:
            self.width = input_ids.shape[1]
        made: torch.Tensor = super().__call__(input_ids, scores)
        if input_ids.shape[1] > self.width:
            self.seen(input_ids[:, self.width :], self)
        return made


class BranchSampler(Sampler):
    """``report`` hears of all completions while they are written, as far as they are: one that is still written has no ``finish_reason``."""

    def __init__(self, model: Any, tokenizer: Any, task: Task, how: Sampling, report: Report) -> None:
        super().__init__(model, tokenizer, task, how)
        self.report = report
        self.all: list[Completion] = []
        self.open_turn = 0  # tokens that the turn which is sampled next has already
        self.reported = 0.0

    def continue_from(self, begun: Completion, example: Example, count: int) -> list[Completion]:
        """``count`` completions that begin with ``begun``. Consumes torch's global random numbers."""
        made = self.all = [copy_completion(begun) for _ in range(count)]
        going = list(range(count))
        mine = bool(begun.turns) and begun.turns[-1].role == POLICY
        self.open_turn = len(begun.ids) - begun.turns[-1].start if mine else 0
        turn = sum(one.role == POLICY for one in begun.turns) + (not mine)
        self.model.eval()
        if mine and self.is_turn_over(begun):
            going = self.go_on(going, example, turn)
            turn += 1
        elif self.is_full(begun):
            for completion in made:
                completion.finish_reason = "length"
            going = []
        while going and turn <= self.task.max_turns:
            self.sample_turn([made[i] for i in going])
            for i in going:
                join_last_turns(made[i])
            self.open_turn = 0
            going = self.go_on(going, example, turn)
            turn += 1
        for completion in made:
            completion.text = self.tokenizer.decode(completion.ids, skip_special_tokens=True)
        return made

    def go_on(self, going: Sequence[int], example: Example, turn: int) -> list[int]:
        self.open_turn = 0
        return [i for i in going if self.goes_on(example, self.all[i], turn)]

    def is_turn_over(self, begun: Completion) -> bool:
        """Whether its last token, which somebody chose, ends the policy's turn."""
        if begun.ids[-1] in self.turn_ends:
            return True
        return self.watch_text and bool(self.stop_in(self.tokenizer.decode(begun.ids[begun.turns[-1].start :])))

    def is_full(self, begun: Completion) -> bool:
        most = self.task.max_turn_tokens
        return len(begun.ids) >= self.how.max_tokens or bool(most and self.open_turn >= most)

    def generation_config(self, longest: int) -> GenerationConfig:
        most = self.task.max_turn_tokens
        return super().generation_config(min(longest, most - self.open_turn) if most else longest)

    def make_statistics(self, made: list[Completion]) -> TokenStatistics:
        def seen(ids: torch.Tensor, statistics: TokenStatistics) -> None:
            tokens = sum(len(completion.ids) for completion in self.all) + ids.numel()
            if time.monotonic() - self.reported >= max(REPORT_SECONDS, tokens / TOKENS_A_SECOND):
                self.report(self.so_far(made, ids, statistics))
                self.reported = time.monotonic()

        return WatchedStatistics(self.how.temperature, seen)

    def so_far(self, made: list[Completion], ids: torch.Tensor, statistics: TokenStatistics) -> list[Completion]:
        """All completions with what their current turn has: ``ids`` (B, T) of those in ``made``."""
        known = (torch.stack(statistics.logprobs, 1).tolist(), torch.stack(statistics.entropies[: ids.shape[1]], 1).tolist())
        rows = {id(completion): row for row, completion in enumerate(made)}
        found = []
        for completion in self.all:
            shown = copy_completion(completion)
            if (row := rows.get(id(completion))) is not None:
                sampled = ids[row].tolist()
                end = next((place + 1 for place, token in enumerate(sampled) if token in self.turn_ends), len(sampled))
                end = min(end, self.how.max_tokens - len(shown.ids))
                shown.add(POLICY, sampled[:end], known[0][row][:end], known[1][row][:end])
                join_last_turns(shown)
            shown.text = self.tokenizer.decode(shown.ids, skip_special_tokens=True)
            found.append(shown)
        return found


def copy_completion(begun: Completion) -> Completion:
    return Completion(begun.prompt_ids, [*begun.ids], [*begun.mask], {}, [*begun.turns], [*begun.logprobs], [*begun.entropies], begun.finish_reason)


def join_last_turns(completion: Completion) -> None:
    """What was sampled on goes with the turn of the policy that it continues."""
    if len(completion.turns) > 1 and completion.turns[-1].role == completion.turns[-2].role == POLICY:
        last, before = completion.turns.pop(), completion.turns.pop()
        completion.turns.append(Turn(POLICY, before.start, last.end))
