"""Readers whose turns are written, not sampled."""

from collections.abc import Callable
from typing import Any

import pytest

from trainers.policies.sampling import Completion, Sampler
from trainers.worlds.reader import END

OPTIONS = {"windows": 0.5, "chunks": 3}
READING = {
    "base": "dapo",
    "policy": {"kind": "tiny", "cold_start": False},
    "task": {"name": "reader", "difficulty": "medium", "options": OPTIONS},
    "training__max_completion_length": 120,
    "training__prompts": 8,
}


def script_reading(monkeypatch: pytest.MonkeyPatch, write: Callable[[int, str], str]) -> None:
    """``write(place, asked)``: the turn after ``asked``, all that the policy sees, of the one that is at ``place`` among those played together."""

    def sample_turn(self: Any, made: list[Completion]) -> None:
        for place, completion in enumerate(made):
            turn = write(place, self.tokenizer.decode([*completion.prompt_ids, *completion.ids], skip_special_tokens=True))
            ids = self.tokenizer.encode(turn, add_special_tokens=False)
            ids += [self.tokenizer.eos_token_id] * (not turn.endswith(tuple(self.task.stop)))
            completion.add("assistant", ids, [-0.5] * len(ids), [0.5] * len(ids))

    monkeypatch.setattr(Sampler, "sample_turn", sample_turn)


def read_to_the_end(place: int, asked: str, answers: tuple[str, ...] = ("<answer>none</answer>",)) -> str:
    """A memory for each chunk, then an answer that depends on the place."""
    return answers[place % len(answers)] if END in asked else f"<memory>city {'Rome' if place % 2 else 'Lima'}</memory>"
