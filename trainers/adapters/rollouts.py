"""A sampled batch as the events that report it, every hook's effect included."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trainers.attempt.alternatives import Alternatives
from trainers.attempt.telemetry import Pieces, Scored, build_rollout_event
from trainers.contract import arrays
from trainers.contract.events import AnyEvent, Message, RolloutNode
from trainers.judges import rewards
from trainers.policies.sampling import Completion
from trainers.rollouts.record import record_nodes
from trainers.tasks.base import Example

Array = npt.NDArray[Any]
UNSCORED = "no reward function had an opinion on it"
CUT_OFF = "cut off at the longest completion, and cut-off completions are masked"


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
        self.masks_cut_off = False  # whether cut-off completions are left out of the loss
        self.ends_by_reason = False  # of a world: an episode that it ends, or that used all its turns, has no end token and is whole all the same
        self.alternatives: dict[int, Alternatives] = {}  # row -> the likeliest tokens at each of its positions, of the rows that keep them
        self.reported: dict[int, Scored] = {}  # row -> what its event said, once it is on its way
        self.filtered: Sequence[str] = ()  # (B,) why a method leaves a completion out of the loss; () = none does

    def scored(self, row: int, step: int, group_size: int, weights: dict[str, float], ends: Sequence[int]) -> Scored:
        score = {name: values[row] for name, values in self.scores.items()}
        episode = self.episodes[row] if self.episodes else None
        ended = self.has_ended(row, ends)
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
            finish_reason=episode.finish_reason if episode else "stop" if ended else "length",
            ids=self.ids[row],
            mask=episode.mask if episode else (),
            turns=episode.turns if episode and len(episode.turns) > 1 else [],
            nodes=self.nodes_of(row),
            contributions={name: values[row] for name, values in self.contributions.items()},
            shaped={name: values[row] for name, values in self.shaped.items()},
            token_advantages=b"" if self.token_advantages is None else arrays.pack_array(self.token_advantages[row][: len(self.ids[row])], "e"),
            filtered=self.left_out(row, score, ended, episode),
            alternatives=self.alternatives.get(row),
            answer=episode.answer if episode else None,
        )

    def nodes_of(self, row: int) -> list[RolloutNode]:
        """The tree behind a rollout, where it was made as one."""
        made = self.episodes[row].row if self.episodes else None
        if made is None or self.episodes is None:
            return []
        return record_nodes(made, [other.row for other in self.episodes if other.row is not None])

    def has_ended(self, row: int, ends: Sequence[int]) -> bool:
        """Whether the completion is whole, not cut off. ``ends``: the tokens that end one."""
        if self.ends_by_reason and self.episodes:
            return self.episodes[row].finish_reason != "length"
        return self.ids[row][-1] in ends

    def list_reported(self) -> list[tuple[Scored, Example]]:
        """In the order they were sampled: a model that scores them sees the batch that it would have seen during the step."""
        return [(self.reported[row], self.examples[row]) for row in sorted(self.reported)]

    def left_out(self, row: int, score: dict[str, float | None], ended: bool, episode: Completion | None) -> str:
        """Why the completion is not in the loss; empty where it is."""
        if all(value is None for value in score.values()):
            return UNSCORED
        if self.masks_cut_off and not ended:
            return CUT_OFF
        if episode is not None and episode.notes.get("filtered"):
            return str(episode.notes["filtered"])
        return self.filtered[row] if self.filtered else ""


def build_events(scored: Sequence[Scored], statistics: Mapping[str, Array], pieces: Pieces, stamp: dict[str, Any]) -> list[AnyEvent]:
    """``statistics``: field of the event -> (B, T), padded on the right; log-probabilities and entropies always."""
    logprobs, entropies = statistics["logprobs"], statistics["entropies"]
    made: list[AnyEvent] = []
    for i, one in enumerate(scored):
        count = len(one.ids)
        more = {name: pack_statistic(name, values[i, :count]) for name, values in statistics.items() if name not in ("logprobs", "entropies")}
        made.append(build_rollout_event(one, logprobs[i, :count], entropies[i, :count], pieces, stamp, **more))
    return made


def pack_statistic(name: str, values: Array) -> bytes:
    """(T,) as the event carries it; nothing where all ratios are 1 or nothing was clipped."""
    if name == "sampler_logprobs":
        return arrays.pack_array(values, "f")
    if name == "ratios":  # their distance from 1 is often below what float16 can tell
        return b"" if (values == 1.0).all() else arrays.pack_array(values, "f")
    if name == "clipped":
        return arrays.pack_array(values, "B") if values.any() else b""
    return arrays.pack_array(values, "e")


def character_ends(pieces: Pieces, ids: Sequence[Sequence[int]], texts: Sequence[str]) -> list[list[int]]:
    """B x T: how many characters of its text there are after each token."""
    return [np.cumsum(pieces.lengths(list(row), text)).tolist() for row, text in zip(ids, texts, strict=True)]
