"""Turns of episodes that are written, not sampled: what a method does with them then hangs on nobody's dice."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from trainers.policies.sampling import Completion, Sampler
from trainers.rollouts.engine import Engine
from trainers.rollouts.tree import Node

WORLD = {"policy": {"kind": "tiny", "cold_start": False}, "task__name": "search", "training__max_completion_length": 96, "training__prompts": 8}


def script_turns(monkeypatch: pytest.MonkeyPatch, write: Callable[[int, str], str], entropy: Callable[[str], float] = lambda text: 0.5) -> None:
    """``write(number, text)``: the turn that follows ``text``, what its context holds so far; ``number`` counts the turns written."""
    count = [0]

    def sample_turn(self: Any, made: list[Completion]) -> None:
        for completion in made:
            text = self.tokenizer.decode(completion.ids, skip_special_tokens=True)
            turn = write(count[0], text)
            count[0] += 1
            ids = self.tokenizer.encode(turn, add_special_tokens=False)
            ids += [self.tokenizer.eos_token_id] * (not turn.endswith(tuple(self.task.stop)))
            completion.add("assistant", ids, [-0.5] * len(ids), [entropy(text)] * len(ids))

    monkeypatch.setattr(Sampler, "sample_turn", sample_turn)


def script_nodes(monkeypatch: pytest.MonkeyPatch, write: Callable[[Node], str]) -> None:
    """``write(node)``: the turn that is written below ``node``, whose seat, state and episode say whose it is and where."""

    def sample(self: Engine, at: Sequence[Node], *rest: Any) -> list[Completion]:
        made = [Completion(list(prompt), list(rest)) for prompt, rest in (node.episode.context_ids(node) for node in at)]
        for completion, node in zip(made, at, strict=True):
            turn = write(node)
            ids = self.encode(turn)
            ids += [self.run.tokenizer.eos_token_id] * (not turn.endswith(tuple(self.run.task.stop)))
            completion.add("assistant", ids, [-0.5] * len(ids), [0.5] * len(ids))
        return made

    monkeypatch.setattr(Engine, "sample", sample)
