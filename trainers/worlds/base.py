"""What a world is: a task whose episode goes over several turns, written as pure steps on a JSON state.

A state is never changed in place: keeping it is a snapshot, using it again restores it, so that a rollout can branch, be cut and go on otherwise.
One file is one world. Gymnasium's words map one to one: reset = ``begin`` and ``view``; the observation, reward, terminated and info of a step =
``text``, ``reward``, ``done`` and ``facts``; truncated is a matter of whoever plays.

In the form ``tags`` an episode is one assistant message: turns of the policy that end in a tag, each followed by what the world writes. A world is
therefore a ``Task`` as it is: ``respond`` and the reward functions replay the text from ``begin``.
"""

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from trainers.contract.events import Message
from trainers.tasks import answers
from trainers.tasks.base import BUCKETS, BUCKETS_OF, Example, Reward, Task, digest_example

State = dict[str, Any]
Form = Literal["tags", "chat"]

POLICY = "policy"  # the seat that every world has
THINK, END_THINK = "<think>", "</think>"
MAX_TURN_CHARACTERS = 10_000  # what a seat writes beyond that is not read


@dataclass(frozen=True)
class Seat:
    """Who moves in a world. ``trained``: its tokens are in the loss unless a method says otherwise."""

    name: str
    summary: str
    trained: bool = True


@dataclass(frozen=True)
class Tool:
    """What the policy can do, as the prompt and the pages say it. A turn that uses it ends in ``</name>``."""

    name: str
    summary: str

    @property
    def opening(self) -> str:
        return f"<{self.name}>"

    @property
    def closing(self) -> str:
        return f"</{self.name}>"


@dataclass(frozen=True)
class Step:
    """What a turn led to.

    ``text``: what the next seat reads, empty for nothing. ``to``: the seat that moves next, empty for the same. ``reward``: the world's own opinion
    of this turn. ``facts``: hits, errors, test results, for credit and pages, never for the policy. ``fresh``: the next turn is asked in a context
    of its own, which begins with these messages.
    """

    state: State
    text: str = ""
    to: str = ""
    done: bool = False
    reward: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    fresh: list[Message] | None = None


@dataclass(frozen=True)
class Said:
    """A piece of a demonstration: which seat wrote it. ``seat`` is empty for the world's own words, which nobody is trained to write."""

    seat: str
    text: str


@dataclass(frozen=True)
class Turn:
    seat: str
    text: str
    step: Step


@dataclass(frozen=True)
class Replay:
    """An episode played again from its text. ``rest``: what follows the last turn that could be played; empty for a text that this world wrote."""

    turns: tuple[Turn, ...]
    state: State
    done: bool
    rest: str


class NoOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class World(Task):
    """Subclass it in one file: the class variables of a ``Task``, its tools and the methods below. All are deterministic in their arguments."""

    seats: ClassVar[tuple[Seat, ...]] = (Seat(POLICY, "The policy that is trained."),)
    tools: ClassVar[tuple[Tool, ...]] = ()
    form: ClassVar[Form] = "tags"
    takes_answer: ClassVar[bool] = False  # whether a turn can be a final answer between its tags
    episode_tokens: ClassVar[int] = 96  # of the built-in policy: the longest gold episode fits, whatever the difficulty, and some detours
    Config: ClassVar[type[BaseModel]] = NoOptions  # strict and frozen: the options of a launch
    wordy_options: ClassVar[frozenset[str]] = frozenset()  # those that bring words or tools of their own, hence a vocabulary and a cold start

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        """``seed``: of the run. What a world draws while it is played differs between runs, not between the members of a group.

        Raises pydantic's ValidationError for options that the world does not have.
        """
        self.options = options or {}
        self.config = self.Config.model_validate(self.options)
        self.seed = seed

    def begin(self, example: Example) -> State:
        """The state before the first turn, JSON all through."""
        raise NotImplementedError

    def view(self, example: Example, state: State, seat: str) -> list[Message]:
        """What a seat is asked first."""
        return example.prompt

    def step(self, example: Example, state: State, seat: str, text: str, rng: random.Random) -> Step:
        """What ``text``, this turn of ``seat`` alone, leads to. Never changes ``state`` and raises for no text at all.

        ``rng`` is the same for all members of a group and all branches of a node: they meet the same world.
        """
        raise NotImplementedError

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        """Seat -> reward function -> score of the episode that ended in ``state``."""
        raise NotImplementedError

    def way(self, example: Example, state: State) -> list[str]:
        """Turns of the policy that reach the full reward from ``state``: expert and gold in one. Raises LookupError where there are none."""
        raise NotImplementedError

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        """One demonstration, turn by turn, as imperfect as ``demonstrations`` says."""
        raise NotImplementedError

    def read(self, text: str) -> Example | None:
        """The problem that a seat has written; None for text that is no valid one."""
        return None

    def tell_turns(self, example: Example, turns: Sequence[str]) -> list[Said]:
        """Turns of the policy with the world's answers between them."""
        state, said = self.begin(example), list[Said]()
        for number, text in enumerate(turns):
            step = self.step(example, state, POLICY, text, self.draw_noise(example, number))
            state = step.state
            said += [Said(POLICY, text), *([Said("", step.text)] if step.text and not step.done else [])]
        return said

    # What a Task is asked for.

    @property
    def family(self) -> str:  # type: ignore[override]
        """A world has words of its own: adding one changes no cached policy of another."""
        chosen = self.list_wordy_options()
        return f"{self.name}-{digest_options(chosen)}" if chosen else self.name

    def list_wordy_options(self) -> dict[str, Any]:
        """The chosen options that change the vocabulary."""
        return {name: value for name, value in self.config.model_dump(mode="json", exclude_defaults=True).items() if name in self.wordy_options}

    @property
    def tags(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("think", "answer", "information", *(tool.name for tool in self.tools if tool.name not in ("think", "answer", "information")))

    @property
    def cache_key(self) -> str:
        chosen = self.config.model_dump(mode="json", exclude_defaults=True)
        return f"{self.name}-{digest_options(chosen)}" if chosen else self.name

    @property
    def stop(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(tool.closing for tool in self.tools)

    def gold(self, example: Example) -> str:
        return self.write_episode(example, self.way(example, self.begin(example)))

    def demonstration(self, example: Example, rng: random.Random) -> str:
        return "".join(said.text for said in self.turns(example, rng))

    def respond(self, example: Example, text: str) -> str | None:
        replay = replay_episode(self, example, text)
        if not replay.turns or replay.done or replay.rest or not replay.turns[-1].text.endswith(self.stop):
            return None
        return replay.turns[-1].step.text

    def draw_noise(self, example: Example, turn: int) -> random.Random:
        """What the world draws in turn ``turn`` (from 0) of an example, the same for everybody who plays it in this run; held out, in every run."""
        seed = 0 if is_held_out(example) else self.seed
        return random.Random(f"{seed}/{digest_example(example).hex()}/{turn}")

    def write_episode(self, example: Example, turns: Sequence[str]) -> str:
        """The text of an episode of one seat: each turn and what the world answers."""
        return "".join(said.text for said in self.tell_turns(example, turns))


def digest_options(chosen: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()[:8]


def is_held_out(example: Example) -> bool:
    return digest_example(example)[0] % BUCKETS in BUCKETS_OF["heldout"]


def replay_episode(world: World, example: Example, text: str) -> Replay:
    """Plays the turns of ``text`` from the beginning. A turn ends in a closing tag of a tool, or with the text.

    A text that has other words than the world's after a turn ends there, with the rest unplayed: nobody gets a score for a result he wrote himself.
    """
    state, turns, rest, done = world.begin(example), list[Turn](), text, False
    while rest and not done:
        said, rest = split_turn(rest, world.stop)
        step = world.step(example, state, POLICY, said, world.draw_noise(example, len(turns)))
        turns.append(Turn(POLICY, said, step))
        state, done = step.state, step.done
        if done or not rest:
            break
        if not rest.startswith(step.text) or len(turns) >= world.max_turns:
            break
        rest = rest[len(step.text) :]
    return Replay(tuple(turns), state, done, rest)


def split_turn(text: str, closing: Sequence[str]) -> tuple[str, str]:
    """The first turn and what follows it."""
    ends = [at + len(tag) for tag in closing if (at := text.find(tag)) >= 0]
    end = min(ends, default=len(text))
    return text[:end], text[end:]


def parse_call(text: str, tools: Sequence[Tool]) -> tuple[str, str] | None:
    """(tool, argument) of a turn that is one call, with a thought before it or none; None for any other text, tags of the world in it included."""
    for tool in tools:
        if text.endswith(tool.closing) and len(text) <= MAX_TURN_CHARACTERS:
            before, opened, argument = text[: -len(tool.closing)].rpartition(tool.opening)
            return (tool.name, argument.strip()) if opened and "<" not in argument and is_thought(before.strip()) else None
    return None


def parse_answer(text: str) -> str | None:
    """The final answer of a turn that is one, with a thought before it or none; None for any other text."""
    before, opened, rest = text.strip().rpartition(answers.ANSWER)
    answer, closed, after = rest.partition(answers.END_ANSWER)
    whole = opened and closed and not after and "<" not in answer and len(text) <= MAX_TURN_CHARACTERS
    return answer.strip() if whole and is_thought(before.strip()) else None


def is_thought(text: str) -> bool:
    """Whether it is empty, or one ``<think>`` block without tags in it."""
    return not text or (text.startswith(THINK) and text.endswith(END_THINK) and "<" not in text[len(THINK) : -len(END_THINK)])


@lru_cache(maxsize=4096)
def _replay_scores(world: World, key: bytes, text: str, example: "HashedExample") -> tuple[Replay, dict[str, float | None]]:
    replay = replay_episode(world, example.example, text)
    return replay, world.outcome(example.example, replay.state)[POLICY]


@dataclass(frozen=True)
class HashedExample:
    """An example as a key of the cache of replays: all reward functions of one completion play it once."""

    example: Example = field(compare=False)


def score_by_outcome(world: World, name: str) -> Callable[[str, Example], float | None]:
    """The reward function ``name`` of a world: the text is played again, the state it ends in is scored. 0 for a text that cannot be played whole."""

    def score(text: str, example: Example) -> float | None:
        replay, scores = _replay_scores(world, digest_example(example), text, HashedExample(example))
        return 0.0 if replay.rest else scores[name]

    return score


def make_rewards(world: World, columns: dict[str, tuple[str, float]]) -> dict[str, Reward]:
    """Reward functions of a world's outcome: name -> (what it says, weight)."""
    return {name: Reward(score_by_outcome(world, name), summary, weight) for name, (summary, weight) in columns.items()}
