"""Second answers: the policy is asked once more and sees the question and what was found alone, without its thoughts and without any tool.

What was found stands where the policy reads it in an episode, in its own turn and in the world's words; then the turn goes on with an answer. Its
tokens are never trained on.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainers.contract.events import Message
from trainers.rollouts.seats import Player
from trainers.tasks.answers import ANSWER, END_ANSWER
from trainers.worlds.observations import Observation, observe_turn

if TYPE_CHECKING:
    from trainers.methods.session import Session
    from trainers.rollouts.tree import Node

VERIFIER = "verifier"  # the seat of second answers: the policy, not trained


def observe_path(leaf: "Node") -> list[Observation]:
    """Of the turns on the way to ``leaf`` that called a tool, in their order; without text where the world's answer did not fit."""
    path, found = leaf.episode.path(leaf), list[Observation | None]()
    for turn in leaf.episode.turns(leaf):
        last = turn[-1]
        below = path[path.index(last) + 1 :][:1]
        text = below[0].text if below and below[0].by == "world" else ""
        found.append(observe_turn("".join(node.text for node in turn), text, last.facts))
    return [one for one in found if one is not None]


def ask_again(
    session: "Session", leaves: "Sequence[Node]", questions: Sequence[Sequence[Message]], findings: Sequence[str], count: int = 1
) -> list[float]:
    """For each leaf the share of ``count`` second answers that are right.

    ``findings``: what the turn begins with, before its answer. Answers are noted on their nodes (``right``), which stay beside the episode.
    """
    if not leaves:
        return []
    session.players[VERIFIER] = Player(trained=False)
    begin = [found + ANSWER for found in findings]
    shares = []
    for leaf, answers in zip(leaves, session.ask(VERIFIER, leaves, questions, count, begin=begin), strict=True):
        right = [read_second_answer(node) == leaf.episode.example.reference for node in answers]
        for node, is_right in zip(answers, right, strict=True):
            node.notes["right"] = float(is_right)
        shares.append(sum(right) / count)
    return shares


def read_second_answer(node: "Node") -> str | None:
    """What was written between the tags; None where the answer was not closed, or there was no room for it."""
    answer, closed, _ = node.text.partition(END_ANSWER)
    return answer.strip() if closed and node.by == "policy" else None
