"""Questions that take the right ones of eight tools: who, where, how old, how far, how many, and sums of these.

``How far is the city of the friend of Leo?`` is asked as ``<friend>Leo</friend>``, ``<city>Mia</city>``, ``<far>Rome</far>`` and ends with
``<answer>7</answer>``. Demonstrations hardly ever use more than one tool rightly, so that reinforcement with all of them at once finds little to
reward: whether it helps to begin with one tool is what SpaceTools (arXiv 2512.04069) asks, with tools of computer vision.
"""

import random
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, State, Step, Tool, make_rewards
from trainers.worlds.facts import ATTRIBUTES, PEOPLE
from trainers.worlds.tool_use import CORRECT, FORMAT, ToolWorld, write_answer, write_call, write_information

NOTHING = "nothing"
CITIES, JOBS = ATTRIBUTES["city"][:4], ATTRIBUTES["job"]
SIZE = 6  # people
SUM = re.compile(r"(\d{1,4}) ?([+*-]) ?(\d{1,4})", re.ASCII)
SINGLE = "age"  # a kind of question that takes one tool, that of its name
KINDS = {
    "easy": (SINGLE, "friend age", "city far", "city people", "age calc"),
    "medium": ("friend age", "city far", "boss city people", "age age calc", "friend search"),
    "hard": ("friend city far", "boss city people", "age age calc", "friend boss search", "friend age age calc"),
}
RIGHT, RIGHT_SINGLE, ONE_CALL = 0.10, 0.40, 0.45  # shares of the demonstrations

Call = list[str]  # tool, argument; a list, as JSON has it


class Toolbox(ToolWorld):
    name = "toolbox"
    title = "Eight tools"
    summary = "Answer questions about people and places with eight tools, most of which a question does not need."
    difficulties = {
        "easy": "One or two tools.",
        "medium": "Two or three.",
        "hard": "Three or four.",
    }
    demonstrations = (
        "Of mixed quality by design: of questions for one tool 40 % are answered with it, of the others 10 % with all calls they need; 45 % make the"
        " first call and answer with what it says; the rest guess."
    )
    tools: ClassVar[tuple[Tool, ...]] = (
        Tool("friend", "Says who the friend of a person is."),
        Tool("boss", "Says who the boss of a person is."),
        Tool("age", "Says how old a person is."),
        Tool("city", "Says where a person lives."),
        Tool("people", "Counts the people of a city, in thousands."),
        Tool("far", "Says how far away a city is."),
        Tool("calc", "Works out a sum, difference or product of two numbers."),
        Tool("search", "Finds the sentence about the job of a person."),
    )
    max_turns = 6
    max_turn_tokens = 10
    episode_tokens = 80

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        evidence = ("Share of the calls that the answer needs that were made.", 0.0)
        thrift = ("Share of the calls that the answer needs; 1 without any call.", 0.0)
        self.rewards = make_rewards(self, {"correct": CORRECT, "evidence": evidence, "thrift": thrift, "format": (FORMAT[0], 0.1)})

    def example(self, rng: random.Random, difficulty: str) -> Example:
        return draw_question(rng, rng.choice(KINDS[difficulty]))

    def begin_calls(self, example: Example) -> State:
        return {"calls": 0, "useful": 0, "done": []}

    def call_tool(self, example: Example, state: State, tool: str, argument: str, rng: random.Random) -> Step:
        text, plan = answer_call(example.data, tool, argument), example.data.get("plan", [])
        fresh = [number for number, call in enumerate(plan) if call == [tool, argument] and number not in state["done"]]
        after = {**state, "calls": state["calls"] + 1, "useful": state["useful"] + bool(fresh), "done": [*state["done"], *fresh]}
        facts = {"tool": tool, "query": argument[:100], "evidence": fresh, "error": "the tool knows nothing of it" if text == NOTHING else ""}
        return Step(after, write_information(text), facts=facts)

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        plan, calls = example.data.get("plan"), state["calls"]
        return {
            POLICY: {
                **self.score_answer(example, state),
                "evidence": len(state["done"]) / len(plan) if plan else None,
                "thrift": state["useful"] / calls if calls else 1.0,
            }
        }

    def way(self, example: Example, state: State) -> list[str]:
        self.check_open(state)
        if "plan" not in example.data:
            raise LookupError("the example does not say which calls its answer needs")
        calls = [write_call(*call) for number, call in enumerate(example.data["plan"]) if number not in state["done"]]
        if state["calls"] + len(calls) + 1 > self.max_turns:
            raise LookupError("too few turns are left")
        return [*dict.fromkeys(calls), write_answer(example.reference)]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        kind, plan = rng.random(), example.data["plan"]
        if kind < (RIGHT_SINGLE if len(plan) == 1 else RIGHT):
            return self.tell_turns(example, self.way(example, self.begin(example)))
        tool, argument = plan[0]
        if kind < RIGHT + ONE_CALL and len(plan) > 1:
            said = answer_call(example.data, tool, argument)
            return self.tell_turns(example, [write_call(tool, argument), write_answer(said)])
        if kind < RIGHT_SINGLE + 0.2:
            other = rng.choice([one.name for one in self.tools if one.name not in ("calc", tool)])
            return self.tell_turns(example, [write_call(other, argument), write_answer(guess_answer(example, rng))])
        return self.tell_turns(example, [write_answer(guess_answer(example, rng))])


def draw_question(rng: random.Random, kind: str) -> Example:
    """A question of a kind, which names the tools that its answer takes in their order; its people and places are drawn with it."""
    people = {
        who: {
            "friend": rng.choice([other for other in PEOPLE[:SIZE] if other != who]),
            "boss": rng.choice([other for other in PEOPLE[:SIZE] if other != who]),
            "age": rng.randint(10, 49),
            "city": rng.choice(CITIES),
            "job": rng.choice(JOBS),
        }
        for who in PEOPLE[:SIZE]
    }
    data: dict[str, Any] = {"people": people, "cities": {city: {"people": rng.randint(10, 99), "far": rng.randint(1, 9)} for city in CITIES}}
    tools, person = kind.split(), rng.choice(PEOPLE[:SIZE])
    plan = list[Call]()
    if tools[-1] == "calc":
        first, subject = follow_edges(data, person, [tool for tool in tools if tool in ("friend", "boss")], plan)
        ask_tool(data, "age", first, plan)
        if tools.count("age") == 2:
            other = rng.choice([one for one in PEOPLE[:SIZE] if one not in (person, first)])
            second, told = ask_tool(data, "age", other, plan), f"the age of {other}"
        else:
            second = told = str(rng.randint(1, 9))
        result = ask_tool(data, "calc", f"{people[first]['age']}+{second}", plan)
        return Example([Message("user", f"What is the age of {subject} plus {told}?")], result, {**data, "plan": plan})
    last, subject = follow_edges(data, person, [tool for tool in tools if tool in ("friend", "boss")], plan)
    if "city" in tools:
        place = ask_tool(data, "city", last, plan)
        question = f"How far is the city of {subject}?" if tools[-1] == "far" else f"How many live in the city of {subject}?"
        return Example([Message("user", question)], ask_tool(data, tools[-1], place, plan), {**data, "plan": plan})
    if tools[-1] == "search":
        ask_tool(data, "search", f"{last} job", plan)
        return Example([Message("user", f"What is the job of {subject}?")], str(people[last]["job"]), {**data, "plan": plan})
    return Example([Message("user", f"What is the age of {subject}?")], ask_tool(data, "age", last, plan), {**data, "plan": plan})


def follow_edges(data: dict[str, Any], person: str, edges: Sequence[str], plan: list[Call]) -> tuple[str, str]:
    """(who the edges lead to, how a question names them); the calls are added to the plan."""
    subject = person
    for edge in edges:
        person, subject = ask_tool(data, edge, person, plan), f"the {edge} of {subject}"
    return person, subject


def ask_tool(data: dict[str, Any], tool: str, argument: str, plan: list[Call]) -> str:
    """What a tool says, with the call added to the plan."""
    plan.append([tool, argument])
    return answer_call(data, tool, argument)


def answer_call(data: dict[str, Any], tool: str, argument: str) -> str:
    """What a tool says; ``NOTHING`` for what it does not know."""
    person, place = data.get("people", {}).get(argument), data.get("cities", {}).get(argument)
    if tool in ("friend", "boss", "age", "city") and person:
        return str(person[tool])
    if tool in ("people", "far") and place:
        return str(place[tool])
    if tool == "calc":
        return work_out(argument)
    who, _, what = argument.partition(" ")
    if tool == "search" and what == "job" and who in data.get("people", {}):
        return f"{who}'s job is {data['people'][who]['job']}."
    return NOTHING


def work_out(argument: str) -> str:
    found = SUM.fullmatch(argument)
    if found is None:
        return NOTHING
    one, sign, other = int(found[1]), found[2], int(found[3])
    return str(one + other if sign == "+" else one - other if sign == "-" else one * other)


def guess_answer(example: Example, rng: random.Random) -> str:
    """An answer of the right kind."""
    reference = example.reference
    return str(rng.randint(1, 99)) if reference.isdigit() else rng.choice(JOBS)
