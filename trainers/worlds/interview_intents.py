"""A person who wants a report and has wishes about it that must be asked for: a catalogue of 20 intents in a tree, aspect above detail.

``A report on trains.`` is answered with ``<ask>cost fares</ask>``; a person who has this intent says ``noted``, one who has not ``not relevant``, and
a question asked before gets ``asked already``: the gate of IntentRL's simulator (arXiv 2602.03468), a dictionary in the place of its language model.
The cosine of two sentences is the share of their paths in the tree that they have in common. ``<answer>start</answer>`` ends the questions.
"""

import random
from typing import Any

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import State, Step, Tool
from trainers.worlds.interview_subject import Scores, Subject
from trainers.worlds.tool_use import write_answer, write_call, write_information

TREE = {
    "cost": ("fares", "wages", "taxes", "rents", "loans"),
    "place": ("towns", "coast", "hills", "north", "abroad"),
    "time": ("today", "decade", "night", "winter", "future"),
    "people": ("riders", "staff", "children", "owners", "guests"),
}
INTENTS = tuple((aspect, detail) for aspect, details in TREE.items() for detail in details)
TOPICS = {  # what somebody who wants a report on it may want to have in it: five of the twenty
    "trains": (("cost", "fares"), ("place", "towns"), ("time", "night"), ("people", "riders"), ("people", "staff")),
    "hotels": (("cost", "rents"), ("place", "coast"), ("time", "winter"), ("people", "guests"), ("people", "owners")),
    "schools": (("cost", "taxes"), ("place", "towns"), ("time", "decade"), ("people", "children"), ("people", "staff")),
    "farms": (("cost", "loans"), ("place", "hills"), ("time", "future"), ("people", "owners"), ("cost", "wages")),
}
HIDDEN = {"easy": 2, "medium": 3, "hard": 4}
REPEATED, RELEVANT = 0.92, 0.80  # thresholds of the gate
NOTED, ASKED, BESIDE = "noted", "asked already", "not relevant"
START = "start"


def read_path(question: str) -> tuple[str, ...]:
    """The path in the tree that a question names; empty for words that are none."""
    words = tuple(question.split()[:3])
    is_known = bool(words) and words[0] in TREE and (len(words) == 1 or (len(words) == 2 and words[1] in TREE[words[0]]))
    return words if is_known else ()


def compute_path_cosine(one: tuple[str, ...], other: tuple[str, ...]) -> float:
    """Length of the common path from the root over the longer of the two; 0 with an empty one."""
    common = 0
    for here, there in zip(one, other, strict=False):
        if here != there:
            break
        common += 1
    return common / max(len(one), len(other)) if one and other else 0.0


class Intents(Subject):
    tools = (Tool("ask", f"Asks for one intent: an aspect ({', '.join(TREE)}) and a detail of it."),)
    rewards = {
        "correct": ("1 when every intent was asked for before the report was started.", 1.0),
        "hits": ("Share of the person's intents that were asked for.", 0.0),
        "thrift": ("Share of the questions that brought out an intent.", 0.0),
        "fresh": ("Share of the questions that had not been asked before; 1 without a question.", 0.0),
    }

    def example(self, rng: random.Random, difficulty: str) -> Example:
        topic = rng.choice(list(TOPICS))
        hidden = [list(intent) for intent in sorted(rng.sample(TOPICS[topic], HIDDEN[difficulty]), key=INTENTS.index)]
        return Example([Message("user", f"A report on {topic}, {rng.randint(2, 40)} pages.")], START, {"topic": topic, "hidden": hidden})

    def begin(self, example: Example) -> State:
        return {"asked": [], "found": [], "repeats": 0}

    def count_turns(self, state: State) -> int:
        return len(state["asked"])

    def hear(self, example: Example, state: State, argument: str) -> Step:
        """``facts``: cosine to the nearest open intent, whether the question repeats one, whether it is beside the point, and its form (1, .5, 0)."""
        path, hidden = read_path(argument[:100]), [tuple(intent) for intent in example.data.get("hidden", [])]
        is_open = [intent for intent in hidden if list(intent) not in state["found"]]
        content = max((compute_path_cosine(path, intent) for intent in is_open), default=0.0)
        repeats = max((compute_path_cosine(path, tuple(asked)) for asked in state["asked"]), default=0.0) > REPEATED
        beside = max((compute_path_cosine(path, intent) for intent in hidden), default=0.0) < RELEVANT
        fresh = [] if repeats or beside else [list(path)]
        after = {**state, "asked": [*state["asked"], list(path)], "found": [*state["found"], *fresh], "repeats": state["repeats"] + repeats}
        facts: dict[str, Any] = {"tool": "ask", "query": argument[:100], "evidence": fresh, "content": content, "repeats": repeats, "beside": beside}
        reply = ASKED if repeats else BESIDE if beside else NOTED
        return Step(after, write_information(reply), facts=facts | {"form": len(path) / 2})

    def score(self, example: Example, state: State) -> Scores:
        hidden, asked, found = example.data.get("hidden"), len(state["asked"]), len(state["found"])
        if not hidden:
            return dict.fromkeys(self.rewards)
        return {
            "correct": float(found == len(hidden) and state["answer"] == START),
            "hits": found / len(hidden),
            "thrift": found / asked if asked else 0.0,
            "fresh": 1 - state["repeats"] / asked if asked else 1.0,
        }

    def way(self, example: Example, state: State, turns: int) -> list[str]:
        left = [intent for intent in example.data["hidden"] if intent not in state["found"]]
        if len(left) + 1 > turns:
            raise LookupError("too few turns are left")
        return [*(write_call("ask", " ".join(intent)) for intent in left), write_answer(START)]

    def demonstrate(self, example: Example, rng: random.Random) -> list[str]:
        """Four questions, half about what the topic is known for, half about anything, whether it was asked or not."""
        known = TOPICS[example.data["topic"]]
        asked = [rng.choice(known if rng.random() < 0.5 else INTENTS) for _ in range(rng.randint(2, 4))]
        return [*(write_call("ask", " ".join(intent)) for intent in asked), write_answer(START)]
