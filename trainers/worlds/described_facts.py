"""The world ``graph`` with its facts in the prompt, where a turn describes the evidence before the thought that uses it.

``What is the city of the friend of Leo? Leo friend Mia. Oslo houses Mia. Mia city Oslo. Max leads Zoe.`` wants ``<describe>Leo friend Mia. Mia city
Oslo.</describe><think>Leo friend Mia. Mia city Oslo.</think><answer>Oslo</answer>``. A turn without a description before all else ends the episode
in a broken form. The shape of the answer is VTPerception-R1's (arXiv 2509.24776), where the description is of an image.
"""

import random
from typing import Any

from pydantic import Field, field_validator

from trainers.tasks.base import Example
from trainers.worlds.base import MAX_TURN_CHARACTERS, POLICY, State, Step, make_rewards
from trainers.worlds.graph import FEATURES, Graph, GraphConfig
from trainers.worlds.graph_context import INVERSE, write_chain
from trainers.worlds.tool_use import CORRECT, FORMAT, write_answer

DESCRIBE, END_DESCRIBE = "<describe>", "</describe>"
EDGE_OF = {told: edge for edge, told in INVERSE.items()}  # how an inverse is told -> edge or feature

Triple = tuple[str, str, str]  # whose, edge or feature, value


class DescribedFactsConfig(GraphConfig):
    in_context: bool = Field(True, title="Facts in the prompt", description="Always: there is nothing to describe otherwise.")

    @field_validator("in_context")
    @classmethod
    def check_context(cls, in_context: bool) -> bool:
        if not in_context:
            raise ValueError("without facts in the prompt there is nothing to describe: choose the world graph")
        return in_context


class DescribedFacts(Graph):
    Config = DescribedFactsConfig
    name = "described_facts"
    title = "Facts described first"
    summary = "Answer a chained question from facts in the prompt: first write down those it needs, then use them."
    difficulties = {"easy": "One edge, then a feature.", "medium": "The same as easy.", "hard": "Two edges, then a feature."}
    demonstrations = (
        "Of mixed quality by design: 40 % describe all that is needed and use it, 30 % describe the first fact alone and make up how it goes on, 30 %"
        " describe nothing and guess."
    )
    episode_tokens = 80

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.max_turn_tokens = 72  # type: ignore[misc]  # of this object alone
        covered = ("Share of the facts that the answer needs that the description has.", 0.0)
        true = ("Share of the facts in description and thought that are true; 0 without any.", 0.0)
        self.rewards = make_rewards(self, {"correct": CORRECT, "covered": covered, "true": true, "format": FORMAT})

    @property
    def tags(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*super().tags, "describe")

    def begin_calls(self, example: Example) -> State:
        return {**super().begin_calls(example), "described": [], "thought": []}

    def step(self, example: Example, state: State, seat: str, text: str, rng: random.Random) -> Step:
        description, rest = split_description(text)
        if description is None:
            return Step({**state, "errors": state["errors"] + 1}, done=True, facts={"error": "no description before all else"})
        thought = rest.partition("<think>")[2].partition("</think>")[0]
        described, used = ([list(one) for one in read_triples(part)] for part in (description, thought))
        return super().step(example, {**state, "described": described, "thought": used}, seat, rest, rng)

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        described, used = ([(whose, edge, value) for whose, edge, value in state[name]] for name in ("described", "thought"))
        needed, told = list_needed_triples(example), {*described, *used}
        return {
            POLICY: {
                **self.score_answer(example, state),
                "covered": len(set(needed) & set(described)) / len(needed) if needed else None,
                "true": sum(is_true_fact(one, example) for one in told) / len(told) if told else 0.0,
            }
        }

    def way(self, example: Example, state: State) -> list[str]:
        (turn,) = super().way(example, state)
        facts = turn.partition("<think>")[2].partition("</think>")[0]
        return [write_description(facts) + turn]

    def tell_thought(self, example: Example, kind: float, rng: random.Random) -> str:
        asked = example.data["asked"]
        guess = rng.choice(FEATURES[asked])
        if kind < 0.4:
            chain = write_chain(example)
            return write_description(chain.removeprefix("<think>").removesuffix("</think>")) + chain + write_answer(example.reference)
        if kind < 0.7:
            first = example.data["support"][0]
            person = rng.choice(list(example.data["nodes"]))
            return f"{write_description(first)}<think>{first} {person} {asked} {guess}.</think>{write_answer(guess)}"
        return f"{write_description('')}<think></think>{write_answer(guess)}"


def write_description(facts: str) -> str:
    return f"{DESCRIBE}{facts}{END_DESCRIBE}"


def split_description(text: str) -> tuple[str | None, str]:
    """(description, what follows it); None for a text that does not begin with one."""
    text = text.strip()
    inside, closed, rest = text.removeprefix(DESCRIBE).partition(END_DESCRIBE)
    if not text.startswith(DESCRIBE) or not closed or "<" in inside or len(text) > MAX_TURN_CHARACTERS:
        return None, text
    return inside.strip(), rest


def read_triples(text: str) -> list[Triple]:
    """The distinct facts of a text in their order, those told the other way round turned; other sentences are left out."""
    found = list[Triple]()
    for sentence in text.split("."):
        words = sentence.split()
        if len(words) == 3 and words[1] in INVERSE:
            found.append((words[0], words[1], words[2]))
        elif len(words) == 3 and words[1] in EDGE_OF:
            found.append((words[2], EDGE_OF[words[1]], words[0]))
    return list(dict.fromkeys(found))


def list_needed_triples(example: Example) -> list[Triple]:
    """What the answer needs."""
    return [one for fact in example.data.get("support", ()) for one in read_triples(fact)]


def list_told_triples(example: Example) -> list[Triple]:
    """What the prompt says, told either way."""
    return read_triples(example.prompt[-1].content.partition("?")[2])


def is_true_fact(triple: Triple, example: Example) -> bool:
    """Whether a fact is true in the example's graph, told or not."""
    whose, edge, value = triple
    there = example.data.get("nodes", {}).get(whose, {}).get(edge)
    return value in there if isinstance(there, list) else there == value
