"""PARL-MT: function calls over the turns of a user, with a progress text in place of the history (arXiv 2509.23206; later called PROGRA).

In turn t the policy reads the progress p_{t-1} and what the user says, and writes its own progress p_t and a call a_t. Nothing else of the past is in
its context, so that the context stays as long as one turn. R(tau) = w_c mean_t 1[a_t is the gold call] + w_s 1[the final booking is the gold one],
the same for every context of a conversation; A is its z-score in the group.

A rollout plays the whole conversation of a prompt's turn, each turn in a context of its own, and hands over that turn's context as the row that is
trained: all members of a group the same turn, or the last one they reached. Turns are drawn as the world's examples are, so that over a run every
turn is trained equally often.

Our reading of the abstract: rewards, weights and contexts. The world is ``booking`` (option ``progress``), whose demonstrations take the place of the
generated progress data of the supervised stage. It differs from GRPO in rollout and reward. Extra step time: the turns that are played and not
trained, reported in ``policy_tokens``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.events import Message
from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.tasks.base import Example
from trainers.worlds.booking import SLOTS, tell_user_turn
from trainers.worlds.booking_progress import ANSWER, NOTHING, build_turn_example, list_gold_contents, parse_progress_turn

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion

Complete = Callable[[Sequence[Sequence[Message]], Sequence[Example]], "list[Completion]"]  # prompts, examples -> completions


@dataclass
class Conversation:
    """A conversation that is played: its contexts so far, which turns matched the gold one, and the booking."""

    example: Example
    contexts: "list[tuple[list[Message], Completion]]" = field(default_factory=list)
    matches: list[bool] = field(default_factory=list)
    booking: dict[str, str] = field(default_factory=dict)
    progress: str = NOTHING
    done: bool = False

    def ask(self) -> Example:
        turn = len(self.contexts)
        return build_turn_example(self.example, turn, tell_user_turn(self.example, turn), self.progress)

    def take(self, asked: Example, made: "Completion") -> None:
        """Adds a turn. The conversation ends with an answer, with a turn that cannot be read, or when the user has nothing more to say."""
        turn, gold = parse_progress_turn(made.text), list_gold_contents(self.example)
        number = len(self.contexts)
        self.contexts.append((asked.prompt, made))
        is_last = number + 1 == len(gold)
        self.matches.append(turn is not None and (turn.kind == ANSWER) == is_last and turn.content == gold[number])
        self.done = is_last or turn is None or turn.kind == ANSWER
        if turn is None or turn.kind == ANSWER:
            return
        name, _, value = turn.content.partition(" ")
        if value in SLOTS.get(name, ()):
            self.booking = {**self.booking, name: value}
        self.progress = turn.progress[:200]

    @property
    def is_right(self) -> bool:
        """Whether the final booking is the gold one."""
        return self.booking == self.example.data["wanted"]


def play_conversations(examples: Sequence[Example], complete: Complete) -> list[Conversation]:
    """The conversations of ``examples`` from their beginning, those that go on sampled together."""
    played = [Conversation(example) for example in examples]
    while going := [one for one in played if not one.done]:
        asked = [one.ask() for one in going]
        for one, example, made in zip(going, asked, complete([example.prompt for example in asked], asked), strict=True):
            one.take(example, made)
    return played


def grade_conversation(matches: Sequence[bool], turns: int, is_right: bool, calls: float, state: float) -> float:
    """R(tau); ``turns``: of the gold conversation, those that were not reached count as wrong."""
    return calls * sum(matches) / turns + state * is_right


class Config(Strict):
    calls: float = param(0.5, "Weight of the share of turns with the gold call.", title="Calls (w_c)", ge=0, le=10)
    state: float = param(0.5, "Weight of the right final booking.", title="Final state (w_s)", ge=0, le=10)


class ParlMT(Method):
    card = Card(
        name="parl-mt",
        title="Progress-aware multi-turn function calling",
        arxiv="2509.23206",
        system="PARL-MT",
        base="grpo",
        provenance="abstract",
        source="abstract (a later version is called PROGRA)",
        fit="needs-environment",
        idea="Write a progress text in every turn and let it replace the history; pay all turns of a conversation for its calls and its final state.",
        formula=(
            r"c_t = (p_{t-1}, u_t), \quad (p_t, a_t) \sim \pi(\cdot | c_t)",
            r"R(\tau) = w_c \frac{1}{T} \sum_t 1[a_t = a_t^*] + w_s 1[s_T = s_T^*]",
        ),
        reading="rewards, their weights, and what a context holds",
        departures=(
            "Of a conversation's contexts one is trained, the same turn for a whole group: a batch has one row for each rollout.",
            "The progress of the supervised stage is written by the world, four in ten imperfect, not by a model and filtered.",
            "The final answer of the whole booking counts as a turn of its own.",
        ),
        claim=("parl-mt/final", "higher"),
    )
    Config = Config
    worlds = frozenset({"booking"})
    roles = {"rewards": "makes"}
    owns = frozenset({"rollout", "prompt"})
    requires = (
        Requirement("task.options.progress", "equals", True, "the progress is in the prompt with this option of the world"),
        Requirement("dataset", "equals", None, "it needs what the world knows of its own prompts"),
    )

    def rollout(self, session: "Session") -> "list[Completion]":
        played = play_conversations(session.examples, session.complete)
        self.log("policy_tokens", sum(sum(made.mask) for one in played for _, made in one.contexts))
        rows = []
        for place, one in enumerate(played):
            turn = min(one.example.data["turn"], len(one.contexts) - 1)
            session.prompts[place], made = one.contexts[turn]
            turns = len(list_gold_contents(one.example))
            made.notes |= {
                "turn": turn,
                "matched": sum(one.matches) / turns,
                "final": one.is_right,
                "return": grade_conversation(one.matches, turns, one.is_right, self.config.calls, self.config.state),
            }
            rows.append(made)
        return rows

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        if not all("return" in note for note in batch.notes):  # a replay of stored rollouts does not know the other turns
            return rewards
        self.log("final", sum(float(note["final"]) for note in batch.notes) / len(batch.notes))
        self.log("matched", sum(note["matched"] for note in batch.notes) / len(batch.notes))
        self.log("context", sum(map(len, batch.prompt_ids)) / len(batch.prompt_ids))
        return torch.tensor([note["return"] for note in batch.notes]).to(rewards)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Conversations", (Series(f"{name}/final", "right final booking"), Series(f"{name}/matched", "turns with the gold call"))),
            Panel("Context of a turn", (Series(f"{name}/context", "tokens"),), unit="tokens"),
        )
