"""Questions over a graph of people that is seen through functions, one edge or feature a turn.

``How many pets does the friend of Leo have?`` is asked as ``<neighbours>Leo friend</neighbours>``, ``<degree>Mia pet</degree>`` and ends with
``<answer>2</answer>``. Functions on a graph in the place of text search are GraphDancer's. With the option ``in_context`` there are no functions: the
facts stand in the prompt (``graph_context.py``), and a turn is a thought and an answer, as in SIE.
"""

import random
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, State, Step, Tool, make_rewards
from trainers.worlds.facts import PEOPLE
from trainers.worlds.graph_context import describe_context, keep_support, write_careless_chain, write_chain
from trainers.worlds.tool_use import CORRECT, FORMAT, ToolWorld, write_answer, write_call, write_information

EDGES = ("friend", "boss")  # one each
FEATURES = {"city": ("Rome", "Oslo", "Lima", "Cairo"), "job": ("cook", "nurse", "pilot", "judge")}
SEVERAL = "pet"  # from none to three
PETS = ("cat", "dog", "fox")
KINDS = {"easy": ("degree", "feature of"), "medium": ("feature of", "degree of"), "hard": ("feature of of", "degree of of")}
HOPS = {"degree": 0, "feature of": 1, "degree of": 1, "feature of of": 2, "degree of of": 2}
NOTHING = "nothing"


class GraphConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    people: int = Field(6, ge=3, le=8, title="People", description="Nodes of the graph that stand for people.")
    shown: bool = Field(False, title="Graph in the prompt", description="Edges and features of the question's people stand in the prompt.")
    in_context: bool = Field(
        False, title="Facts instead of functions", description="Facts and their inverses stand in the prompt, shuffled, and there are no functions."
    )
    support: float = Field(1.0, ge=0, le=1, title="Support kept", description="Share of the needed facts in the prompt; their inverses always are.")
    distractors: int = Field(3, ge=0, le=12, title="Distractors", description="Facts in the prompt that are beside the point.")


class Graph(ToolWorld):
    name = "graph"
    title = "Graph of people"
    summary = "Answer chained questions by functions on a graph: neighbours, features and how many edges leave a node."
    Config = GraphConfig
    config: GraphConfig
    difficulties = {
        "easy": "How many pets a person has, or a feature of somebody an edge leads to.",
        "medium": "A feature or the number of pets of somebody an edge leads to.",
        "hard": "The same of somebody two edges lead to.",
    }
    demonstrations = (
        "Of mixed quality by design, so that reinforcement has strategies to choose between: 40 % follow every edge and are right, 30 % ask about the"
        " person in the question whatever the edges say, 30 % guess."
    )
    tools: ClassVar[tuple[Tool, ...]] = (
        Tool("node", "Says all features of a node."),
        Tool("feature", "Says one feature of a node: its name, then city or job."),
        Tool("neighbours", "Follows an edge: the node's name, then friend, boss or pet."),
        Tool("degree", "Counts the edges of a kind that leave a node."),
    )
    max_turns = 5
    max_turn_tokens = 12
    episode_tokens = 64
    wordy_options = frozenset({"in_context"})

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        if self.config.in_context:
            self.tools, self.max_turn_tokens = (), 48  # type: ignore[assignment, misc]  # of this object alone
            self.rewards = make_rewards(self, {"correct": CORRECT, "format": FORMAT})
            return
        self.rewards = make_rewards(
            self,
            {
                "correct": CORRECT,
                "evidence": ("Share of the edges and features that the answer needs that the calls have shown.", 0.0),
                "thrift": ("Share of the calls that showed something new the answer needs.", 0.0),
                "format": (FORMAT[0], 0.2),  # without it a run can unlearn the closing tags of calls that were wrong, and never find back
            },
        )

    def example(self, rng: random.Random, difficulty: str) -> Example:
        people = PEOPLE[: self.config.people]
        nodes = {
            who: {
                **{edge: [rng.choice([one for one in people if one != who])] for edge in EDGES},
                SEVERAL: rng.sample(PETS, rng.randint(0, 3)),
                **{name: rng.choice(values) for name, values in FEATURES.items()},
            }
            for who in people
        }
        kinds = [kind for kind in KINDS[difficulty] if not self.config.in_context or kind.startswith("feature")]
        kind, person = rng.choice(kinds), rng.choice(people)
        chain, at = [rng.choice(EDGES) for _ in range(HOPS[kind])], person
        needed = []
        for edge in chain:
            needed.append(["neighbours", f"{at} {edge}"])
            at = nodes[at][edge][0]
        whose = "".join(f"the {edge} of " for edge in reversed(chain)) + person
        asked = rng.choice(list(FEATURES)) if kind.startswith("feature") else SEVERAL
        question = f"What is the {asked} of {whose}?" if asked != SEVERAL else f"How many pets has {whose}?"
        needed.append(["feature" if asked != SEVERAL else "degree", f"{at} {asked}"])
        reference = str(nodes[at][asked]) if asked != SEVERAL else str(len(nodes[at][SEVERAL]))
        data = {"nodes": nodes, "needed": needed, "person": person, "asked": asked}
        if self.config.in_context:
            data |= {"question": question, **describe_context(nodes, needed, self.config.distractors, rng)}
            return keep_support(Example([], reference, data), self.config.support, rng)
        shown = f" {tell_steps(nodes, needed)}" if self.config.shown else ""
        return Example([Message("user", question + shown)], reference, data)

    def begin_calls(self, example: Example) -> State:
        return {"calls": 0, "useful": 0, "shown": []}

    def call_tool(self, example: Example, state: State, tool: str, argument: str, rng: random.Random) -> Step:
        text = answer_call(example.data.get("nodes", {}), tool, argument)
        shows = list_shown(example, tool, argument)
        fresh = [number for number in shows if number not in state["shown"]]
        after = {**state, "calls": state["calls"] + 1, "useful": state["useful"] + bool(fresh), "shown": [*state["shown"], *fresh]}
        facts = {"tool": tool, "query": argument[:100], "evidence": fresh, "error": "no such node, edge or feature" if text == NOTHING else ""}
        return Step(after, write_information(text), facts=facts)

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        needed, calls = example.data.get("needed"), state["calls"]
        return {
            POLICY: {
                **self.score_answer(example, state),
                "evidence": len(state["shown"]) / len(needed) if needed else None,
                "thrift": state["useful"] / calls if calls else 0.0,
            }
        }

    def way(self, example: Example, state: State) -> list[str]:
        self.check_open(state)
        if self.config.in_context:
            return [write_chain(example) + write_answer(example.reference)]
        calls = [write_call(tool, argument) for number, (tool, argument) in enumerate(example.data["needed"]) if number not in state["shown"]]
        if state["calls"] + len(calls) + 1 > self.max_turns:
            raise LookupError("too few turns are left")
        return [*calls, write_answer(example.reference)]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        kind, nodes, asked = rng.random(), example.data["nodes"], example.data["asked"]
        if self.config.in_context:
            return self.tell_turns(example, [self.tell_thought(example, kind, rng)])
        if kind < 0.4:
            return self.tell_turns(example, self.way(example, self.begin(example)))
        person = example.data["person"] if kind < 0.7 else rng.choice(list(nodes))
        tool = "degree" if asked == SEVERAL else "feature"
        answer = answer_call(nodes, tool, f"{person} {asked}")
        return self.tell_turns(example, [*([write_call(tool, f"{person} {asked}")] if kind < 0.7 else []), write_answer(answer)])

    def tell_thought(self, example: Example, kind: float, rng: random.Random) -> str:
        """Half follow the facts that are there, 20 % those that should be, with a guess where one is not, and 30 % guess at once."""
        if kind < 0.5:
            return write_chain(example) + write_answer(example.reference)
        guess = write_answer(rng.choice(FEATURES[example.data["asked"]]))
        if kind < 0.7:
            return write_careless_chain(example) + (guess if example.data["missing"] else write_answer(example.reference))
        return guess


def answer_call(nodes: dict[str, dict[str, Any]], tool: str, argument: str) -> str:
    who, _, name = argument.partition(" ")
    node = nodes.get(who, {})
    if tool == "node" and not name and node:
        return " ".join(node[feature] for feature in FEATURES)
    if tool == "feature" and name in FEATURES and node:
        return str(node[name])
    if tool == "neighbours" and name in (*EDGES, SEVERAL) and node:
        return " ".join(node[name]) or "none"
    if tool == "degree" and name in (*EDGES, SEVERAL) and node:
        return str(len(node[name]))
    return NOTHING


def list_shown(example: Example, tool: str, argument: str) -> list[int]:
    """Which of the needed calls this one makes needless: the same, all features of the node, or its pets one by one."""
    who, _, name = argument.partition(" ")
    same = {(tool, argument)}
    if tool == "node" and not name:
        same |= {("feature", f"{who} {feature}") for feature in FEATURES}
    if tool == "neighbours" and name == SEVERAL:
        same.add(("degree", argument))
    return [number for number, (kind, what) in enumerate(example.data.get("needed", [])) if (kind, what) in same]


def tell_steps(nodes: dict[str, dict[str, Any]], needed: list[list[str]]) -> str:
    return " ".join(f"{argument}: {answer_call(nodes, tool, argument)}." for tool, argument in needed)
