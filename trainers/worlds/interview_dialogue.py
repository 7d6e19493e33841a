"""A help desk with a dialogue graph: ask along its questions until the one answer that fits what the user needs.

``Please help me. rail, second. Trip 12.`` is answered with ``<ask>need</ask>``, the user says ``travel``, and the right end is
``<answer>full</answer>``. A node of the graph is a question with an edge for each value, or an answer. A user has a need, which is one answer, and
knows the facts on the way to it; some stand in the prompt. Half of all facts are said in another wording than the edge's, the same for everybody who
talks to this user. A question that is not on the way gets ``not relevant``. The task is Conversational Tree Search (arXiv 2410.05821); there the
nodes of graphs are whole sentences, here a question and an answer are a word each, and the user is a rule.
"""

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import State, Step, Tool
from trainers.worlds.interview_subject import Scores, Subject
from trainers.worlds.tool_use import write_answer, write_call, write_information


@dataclass(frozen=True)
class DialogueGraph:
    """``questions``: question -> value -> next node; a node that is no question is an answer. Raises ValueError for a graph with a circle."""

    start: str
    questions: Mapping[str, Mapping[str, str]]

    def __post_init__(self) -> None:
        self.check_acyclic(self.start, ())

    def check_acyclic(self, node: str, above: tuple[str, ...]) -> None:
        if node in above:
            raise ValueError(f"the graph leads from {node!r} back to it")
        for child in self.list_children(node):
            self.check_acyclic(child, (*above, node))

    def is_answer(self, node: str) -> bool:
        return node not in self.questions

    def is_answered(self, question: str, said: Collection[str]) -> bool:
        """Whether one of the question's values is among the words that the user has said."""
        return any(value in said for value in self.questions[question])

    def list_children(self, node: str, said: Collection[str] = ()) -> list[str]:
        """The next nodes, each once, in the order of the graph: those that what was said leads to, or all where it leads to none."""
        edges = self.questions.get(node, {})
        return list(dict.fromkeys(child for value, child in edges.items() if value in said)) or list(dict.fromkeys(edges.values()))

    def list_answers(self) -> list[str]:
        """Those that can be reached."""
        found, open_nodes = dict[str, None](), [self.start]
        while open_nodes:
            node = open_nodes.pop(0)
            if self.is_answer(node):
                found[node] = None
            open_nodes += self.list_children(node)
        return list(found)

    def draw_facts(self, rng: random.Random) -> tuple[dict[str, str], str]:
        """A user: question -> value on a way that is drawn edge by edge, and the answer at its end."""
        facts, node = dict[str, str](), self.start
        while not self.is_answer(node):
            facts[node] = rng.choice(list(self.questions[node]))
            node = self.questions[node][facts[node]]
        return facts, node


GRAPH = DialogueGraph(
    "need",
    {
        "need": {"fares": "vehicle", "rooms": "place", "meals": "length"},
        "vehicle": {"train": "class", "car": "owner", "plane": "consent"},
        "class": {"first": "half", "second": "full"},
        "owner": {"own": "mileage", "rented": "invoice"},
        "consent": {"given": "ticket", "missing": "appeal"},
        "place": {"inland": "host", "abroad": "permit"},
        "host": {"hotel": "bill", "friends": "thanks"},
        "permit": {"stamped": "lump", "unstamped": "refusal"},
        "length": {"short": "company", "long": "company"},  # has one child: what is said is for the person who gives the answer
        "company": {"alone": "rate", "guests": "share"},
    },
)
WORDINGS = {  # value -> how else it is said
    "fares": "travel",
    "rooms": "lodging",
    "meals": "food",
    "train": "rail",
    "car": "auto",
    "plane": "flight",
    "first": "upper",
    "second": "economy",
    "own": "mine",
    "rented": "hired",
    "given": "granted",
    "missing": "absent",
    "inland": "domestic",
    "abroad": "overseas",
    "hotel": "inn",
    "friends": "family",
    "stamped": "sealed",
    "unstamped": "blank",
    "short": "brief",
    "long": "weeks",
    "alone": "solo",
    "guests": "party",
}
REWORDED = 0.5  # share of the facts that are said in the other wording
TOLD = {"easy": -1, "medium": 1, "hard": 0}  # facts in the prompt; negative: all but so many
BESIDE = "not relevant"


class Dialogue(Subject):
    tools = (Tool("ask", f"Asks one question: {', '.join(GRAPH.questions)}."),)
    rewards = {
        "correct": ("1 when the answer is the one that the user's facts lead to.", 1.0),
        "brief": ("Fewest turns that suffice for this user over the turns that were used, at most 1; 0 without an answer.", 0.0),
        "known": ("Share of the facts on the way to the right answer that the user had told when the dialogue ended.", 0.0),
    }

    def __init__(self, graph: DialogueGraph = GRAPH, wordings: Mapping[str, str] = WORDINGS) -> None:
        self.graph, self.wordings = graph, wordings

    def example(self, rng: random.Random, difficulty: str) -> Example:
        facts, answer = self.graph.draw_facts(rng)
        words = {asked: self.wordings.get(value, value) if rng.random() < REWORDED else value for asked, value in facts.items()}
        count = TOLD[difficulty] if TOLD[difficulty] >= 0 else len(facts) + TOLD[difficulty]
        chosen = rng.sample(list(facts), min(count, len(facts)))
        told = [asked for asked in facts if asked in chosen]
        said = f" {', '.join(words[asked] for asked in told)}." if told else ""
        prompt = f"Please help me.{said} Trip {rng.randint(2, 60)}."
        return Example([Message("user", prompt)], answer, {"facts": facts, "words": words, "told": told})

    def begin(self, example: Example) -> State:
        return {"asked": [], "known": list(example.data.get("told", []))}

    def count_turns(self, state: State) -> int:
        return len(state["asked"])

    def hear(self, example: Example, state: State, argument: str) -> Step:
        words, asked = example.data.get("words", {}), argument[:100]
        is_fresh = asked in words and asked not in state["known"]
        facts: dict[str, Any] = {"tool": "ask", "query": asked, "evidence": [asked] if is_fresh else []}
        after = {**state, "asked": [*state["asked"], asked], "known": [*state["known"], *([asked] if is_fresh else [])]}
        return Step(after, write_information(words.get(asked, BESIDE)), facts=facts)

    def score(self, example: Example, state: State) -> Scores:
        facts = example.data.get("facts")
        if not facts:
            return dict.fromkeys(self.rewards)
        needed, used = len(facts) - len(example.data["told"]) + 1, len(state["asked"]) + 1
        return {
            "correct": float(state["answer"] == example.reference),
            "brief": 0.0 if state["answer"] is None else min(1.0, needed / used),
            "known": len(state["known"]) / len(facts),
        }

    def way(self, example: Example, state: State, turns: int) -> list[str]:
        left = [asked for asked in example.data["facts"] if asked not in state["known"]]
        if len(left) + 1 > turns:
            raise LookupError("too few turns are left")
        return [*(write_call("ask", asked) for asked in left), write_answer(example.reference)]

    def demonstrate(self, example: Example, rng: random.Random) -> list[str]:
        """Half ask what is left, 3 of 10 ask what was told as well, and 2 of 10 guess at once."""
        kind = rng.random()
        if kind < 0.2:
            return [write_answer(rng.choice(self.graph.list_answers()))]
        asked = [question for question in example.data["facts"] if kind < 0.5 or question not in example.data["told"]]
        return [*(write_call("ask", question) for question in asked), write_answer(example.reference)]
