"""What the tools of an episode gave back, call by call and without the thoughts around them: for judges that must see nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trainers.tasks.base import Example
from trainers.worlds.base import END_THINK, Replay
from trainers.worlds.search import NOTHING
from trainers.worlds.tool_use import write_information


@dataclass(frozen=True)
class Observation:
    """``call``: in its tags. ``text``: what the world wrote after it, in its tags; empty after the last turn of an episode."""

    call: str
    text: str
    facts: dict[str, Any] = field(default_factory=dict)  # of the turn

    @property
    def is_empty(self) -> bool:
        """Whether the tool says that there is nothing to give back, which it would say again."""
        return self.text == write_information(NOTHING)

    @property
    def has_findings(self) -> bool:
        """Whether something was given back: no error, and not nothing."""
        return bool(self.text) and not self.is_empty and not self.facts.get("error")

    @property
    def stands_alone(self) -> bool:
        """Whether what was found says itself what it is about, as the documents of a search engine do; a single word does not."""
        return "hits" in self.facts


def remove_thought(turn: str) -> str:
    """The call of a turn."""
    return turn.rpartition(END_THINK)[2].strip()


def observe_turn(turn: str, text: str, facts: dict[str, Any]) -> Observation | None:
    """None for a turn that called no tool."""
    return Observation(remove_thought(turn), text, facts) if "tool" in facts else None


def list_observations(replay: Replay) -> list[Observation]:
    """Of the turns that called a tool, in their order."""
    found = [observe_turn(turn.text, turn.step.text, turn.step.facts) for turn in replay.turns]
    return [one for one in found if one is not None]


def holds_evidence(observation: Observation, example: Example) -> bool:
    """Whether what a tool gave back holds something that the answer needs, whatever else the episode had found before.

    A world that tells no ``hits`` says only what was new (``evidence``).
    """
    if not observation.stands_alone:
        return bool(observation.facts.get("evidence"))
    return not set(observation.facts["hits"]).isdisjoint(example.data.get("evidence", ()))


def list_hits(observations: Sequence[Observation]) -> list[int]:
    """Numbers of the documents that were retrieved, each where it was retrieved first."""
    return list(dict.fromkeys(hit for one in observations for hit in one.facts.get("hits", ())))


def write_findings(observations: Sequence[Observation]) -> str:
    """What was found, as the world wrote it and in its order, with a call before it where it does not stand alone; empty for no findings."""
    return "".join(one.text if one.stands_alone else one.call + one.text for one in observations if one.has_findings)
