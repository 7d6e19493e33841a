"""A sampled batch as the events that report it, every hook's effect included."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trainers import arrays, rewards
from trainers.events import AnyEvent, Message
from trainers.sampling import Completion
from trainers.tasks.base import Example
from trainers.telemetry import Pieces, Scored, rollout

Array = npt.NDArray[Any]


class GenerationBatch:
    """B completions sampled together, in the order they were sampled: G for each prompt, one prompt after the other."""

    def __init__(
        self,
        examples: Sequence[Example],
        prompts: Sequence[Sequence[Message]],
        texts: Sequence[str],
        ids: Sequence[Sequence[int]],
        scores: dict[str, list[float | None]],
    ) -> None:
        self.examples = examples
        self.prompts = prompts
        self.texts = texts
        self.ids = ids
        self.scores = scores
        self.first_group = 0  # another one where several batches are sampled for one step
        self.advantages: list[float] = []  # (B,) means over tokens, where a method gives each token its own
        self.token_advantages: Array | None = None  # (B, T)
        self.contributions: dict[str, list[float]] = {}  # method -> (B,) advantage after it; "base" first
        self.shaped: dict[str, list[float]] = {}  # method -> (B,) reward after it
        self.episodes: Sequence[Completion] | None = None  # of a task with several turns, or of a rollout method

    def scored(self, row: int, step: int, group_size: int, weights: dict[str, float], ends: Sequence[int]) -> Scored:
        score = {name: values[row] for name, values in self.scores.items()}
        episode = self.episodes[row] if self.episodes else None
        return Scored(
            step=step,
            phase="train",
            group=self.first_group + row // group_size,
            sample=row % group_size,
            prompt=self.prompts[row],
            reference=self.examples[row].reference,
            text=self.texts[row],
            rewards=score,
            reward=rewards.weighted_sum(score, weights),
            advantage=self.advantages[row],
            finish_reason=episode.finish_reason if episode else "stop" if self.ids[row][-1] in ends else "length",
            ids=self.ids[row],
            mask=episode.mask if episode else (),
            turns=episode.turns if episode and len(episode.turns) > 1 else [],
            contributions={name: values[row] for name, values in self.contributions.items()},
            shaped={name: values[row] for name, values in self.shaped.items()},
            token_advantages=b"" if self.token_advantages is None else arrays.pack(self.token_advantages[row][: len(self.ids[row])], "e"),
        )


def build_events(scored: Sequence[Scored], statistics: Array, weights: Array | None, pieces: Pieces, stamp: dict[str, Any]) -> list[AnyEvent]:
    """``statistics``: log-probabilities and entropies, (2, B, T), padded on the right. ``weights``: the methods' token weights (B, T)."""
    logprobs, entropies = statistics
    made: list[AnyEvent] = []
    for i, one in enumerate(scored):
        count = len(one.ids)
        packed = b"" if weights is None else arrays.pack(weights[i, :count], "e")
        made.append(rollout(one, logprobs[i, :count], entropies[i, :count], pieces, stamp, packed))
    return made


def character_ends(pieces: Pieces, ids: Sequence[Sequence[int]], texts: Sequence[str]) -> list[list[int]]:
    """B x T: how many characters of its text there are after each token."""
    return [np.cumsum(pieces.lengths(list(row), text)).tolist() for row, text in zip(ids, texts, strict=True)]
