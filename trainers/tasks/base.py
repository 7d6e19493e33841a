"""What a task is: prompts, how an answer is scored, and (for multi-turn tasks) what the world answers. Pure Python: a web process may import it.

A task is one file. Built-in tasks live in this package; a third party adds one with a package entry point in the group ``policy_lab.tasks``
whose value is a Task subclass.
"""

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from trainers.contract.events import Message
from trainers.contract.reward_definitions import RewardColumn

if TYPE_CHECKING:
    from trainers.rewards.scores import Scorer
    from trainers.tasks.trl_rollouts import TRLRollouts

Split = Literal["train", "heldout", "pairs"]

BUCKETS = 8  # examples are spread over these by their hash: one is held out, one is for preference pairs, the others are for training
BUCKETS_OF: dict[Split, frozenset[int]] = {"heldout": frozenset({0}), "pairs": frozenset({1}), "train": frozenset(range(2, BUCKETS))}
CORE = "core"  # the family of the tasks that came first, and of every task without one of its own
FRESH_TRIES = 20  # how often a repeated example is drawn again before it is taken: a small task may have fewer examples than were asked for


@dataclass(frozen=True)
class Example:
    """One prompt with what scoring its answer needs. ``data`` is JSON (a knowledge base, the steps), never shown to the policy.

    Examples from a person's own dataset may come without ``data``: a reward function that needs it returns None then. Nothing in an example is
    changed once it is made: another one is made with ``replace``.
    """

    prompt: list[Message]
    reference: str
    data: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def digest(self) -> bytes:
        """Kept, because a world asks for it twice a turn and once for each reward function."""
        return digest_prompt(self.prompt, self.data)


def digest_prompt(prompt: Sequence[Message], data: Mapping[str, Any]) -> bytes:
    """What makes an example the same as another one (16 bytes, the same on every machine)."""
    text = json.dumps([[[message.role, message.content] for message in prompt], data], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


RewardFunction = Callable[[str, Example], float | None]  # completion text -> score; None = this function has no opinion on this example


@dataclass(frozen=True)
class Reward:
    function: RewardFunction
    summary: str
    weight: float  # in the summed reward unless the spec says otherwise; 0 = only measured
    scorer: "Scorer | None" = None  # of a column of the reward library: scores a batch at once


class Task:
    """Subclass it, fill the class variables and override what the task needs; all methods are deterministic in their arguments."""

    # Of the class for a task that is code; a task read from a file has its own.
    name: str
    title: str
    summary: str
    difficulties: dict[str, str]  # name -> what it means; the first is the default
    rewards: dict[str, Reward]  # the first one is the task's accuracy; a run's own object has the spec's columns after them
    options: Mapping[str, Any] = {}  # those that a launch chose, of a world
    shadows: tuple[RewardColumn, ...] = ()  # columns that are scored beside training
    available: Mapping[str, int] | None = None  # how many prompts there are, by split; None: as many as are wanted
    demonstrations: str  # what the cold start's demonstrations are like, said to the person who launches one
    stop: ClassVar[tuple[str, ...]] = ()  # a turn of the policy also ends after one of these
    trl: ClassVar["TRLRollouts | None"] = None  # TRL's own ways of several turns, in place of ``respond``
    max_turns: ClassVar[int] = 1
    max_turn_tokens: ClassVar[int] = 0  # longest single turn of the policy; 0 = as long as the completion may be
    family: ClassVar[str] = CORE  # tasks of one family share the built-in policy's vocabulary
    tags: ClassVar[tuple[str, ...]] = ("think", "answer", "search", "information")  # each a token of that vocabulary, opened and closed

    def example(self, rng: random.Random, difficulty: str) -> Example:
        """One example drawn with ``rng`` alone, from the same distribution for every split. A task with a fixed list overrides ``examples``."""
        raise NotImplementedError

    def examples(self, split: Split, count: int, seed: int, difficulty: str) -> list[Example]:
        """``count`` examples; held-out ones do not depend on ``seed`` and never occur in another split.

        Raises ValueError for a difficulty the task does not have.
        """
        if difficulty not in self.difficulties:
            raise ValueError(f"task {self.name} has no difficulty {difficulty!r}: use one of {', '.join(self.difficulties)}")
        rng = random.Random(f"{self.name}/{difficulty}/{split}/{0 if split == 'heldout' else seed}")
        wanted, seen, drawn = BUCKETS_OF[split], set[bytes](), list[Example]()
        repeats = 0
        while len(drawn) < count:
            example = self.example(rng, difficulty)
            digest = digest_example(example)
            if digest[0] % BUCKETS not in wanted:
                continue
            if digest in seen and repeats < FRESH_TRIES:
                repeats += 1
                continue
            repeats = 0
            seen.add(digest)
            drawn.append(example)
        return drawn

    def draw_demonstrations(self, count: int, seed: int, difficulty: str) -> list[Example]:
        """``count`` examples for training that ``demonstration`` has one for. Raises LookupError when there is none."""
        return self.examples("train", count, seed, difficulty)

    @property
    def cache_key(self) -> str:
        """Names it among what is kept on the disk: letters, digits and dashes."""
        return self.name

    def gold(self, example: Example) -> str:
        """A completion (of the policy alone, or with the world's answers in it) that gets the full reward of every function.

        Raises LookupError for an example of a person's own dataset whose ``data`` does not say how the answer is reached.
        """
        raise NotImplementedError

    def demonstration(self, example: Example, rng: random.Random) -> str:
        """One demonstration for the cold start, as imperfect as ``demonstrations`` says. Raises LookupError for an example without one."""
        raise NotImplementedError

    def measure_together(self, examples: Sequence[Example], answers: Sequence[str]) -> dict[str, float | None]:
        """Metrics of held-out answers that none of them has alone, such as whether two of them agree; None for one that is undefined."""
        return {}

    def respond(self, example: Example, text: str) -> str | None:
        """The world's answer to the completion so far, which ends in one of ``stop``; None ends the episode."""
        return None


def digest_example(example: Example) -> bytes:
    """``digest_prompt`` of an example, or of what stands in one's place and has no digest of its own, because its question changes meanwhile."""
    return example.digest if isinstance(example, Example) else digest_prompt(example.prompt, example.data)
