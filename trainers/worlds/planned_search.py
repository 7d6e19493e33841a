"""Chained questions that are split first: a plan of sub-questions, a search for each, and an answer to each.

``What is the city of the friend of Eva?`` begins with ``<plan>Eva's friend; #1's city</plan>``, where #1 stands for the answer to the first
sub-question. The world looks the sub-questions up one after the other: ``<information>Eva's friend is Leo. ...</information>`` wants
``<sub>Leo</sub>``, and what is found for the last one ``<answer>Paris</answer>``. The shape of the episode is AceSearcher's (arXiv 2509.24193).
"""

import random
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, State, Step, Tool, make_rewards
from trainers.worlds.facts import ATTRIBUTES, PEOPLE, RELATIONS, Facts, Size, draw_facts, split_words
from trainers.worlds.search import NOTHING, find_evidence, read_facts, write_question
from trainers.worlds.tool_use import CORRECT, FORMAT, ToolWorld, write_answer, write_call, write_information

PLAN, SUB = "plan", "sub"
MOST_SUBQUESTIONS = 6
NAMED = frozenset({*RELATIONS, *ATTRIBUTES})
HOPS = {"easy": (1, 1), "medium": (1, 2), "hard": (2, 2)}  # relations before the attribute
SIZES = {"easy": Size(6, 3, 3), "medium": Size(8, 3, 3), "hard": Size(12, 4, 4)}
GOOD_PLANS, MISREAD = 0.45, 0.25  # of the demonstrations: plans with one step a sub-question; answers that are not what was found


class PlannedSearchConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    hits: int = Field(2, ge=1, le=4, title="Hits", description="Sentences found for a sub-question; each takes some 7 tokens of the context.")


class PlannedSearch(ToolWorld):
    name = "planned_search"
    title = "Search by sub-questions"
    summary = "Split a chained question into sub-questions, and answer each from the sentences that are found for it."
    Config = PlannedSearchConfig
    config: PlannedSearchConfig
    difficulties = {
        "easy": "One relation, then an attribute; 6 people, 36 sentences.",
        "medium": "One or two relations, then an attribute; 8 people, 48 sentences.",
        "hard": "Two relations, then an attribute; 12 people, 96 sentences.",
    }
    demonstrations = (
        "Of mixed quality by design: 45 % plan one step in each sub-question, 30 % ask for all steps at once, 25 % leave the relations out; a quarter"
        " of all answers are not what was found."
    )
    tools = (
        Tool(PLAN, "Splits the question into sub-questions, with ; between them; #1 stands for the first one's answer."),
        Tool(SUB, "Answers a sub-question, all but the last; the last one's answer is the final answer."),
    )
    max_turns = 5
    max_turn_tokens = 28
    episode_tokens = 144

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.rewards = make_rewards(
            self,
            {
                "correct": CORRECT,
                "format": FORMAT,
                "evidence": ("Share of the sentences the answer needs that were found.", 0.0),
                "single": ("1 when the plan has as many sub-questions as there are steps, each of one step.", 0.0),
            },
        )

    def example(self, rng: random.Random, difficulty: str) -> Example:
        size = SIZES[difficulty]
        facts = draw_facts(rng, size)
        person, attribute = rng.choice(PEOPLE[: size.people]), rng.choice(list(ATTRIBUTES)[: size.attributes])
        chain = [rng.choice(RELATIONS[: size.relations]) for _ in range(rng.randint(*HOPS[difficulty]))]
        world, at, needed = Facts(facts), person, list[int]()
        for relation in [*chain, attribute]:
            needed += world.numbers(at, relation)
            at = world.value(at, relation)
        data = {
            "facts": [[fact.subject, fact.relation, fact.value] for fact in facts],
            "evidence": needed,
            "person": person,
            "chain": chain,
            "attribute": attribute,
        }
        return Example([Message("user", write_question(person, chain, attribute, None))], at, data)

    def begin_calls(self, example: Example) -> State:
        return {"plan": [], "subs": [], "found": []}

    def call_tool(self, example: Example, state: State, tool: str, argument: str, rng: random.Random) -> Step:
        if tool == PLAN and not state["plan"]:
            return self.look_up(example, {**state, "plan": split_plan(argument)}, tool)
        if tool == SUB and len(state["subs"]) + 1 < len(state["plan"]):
            return self.look_up(example, {**state, "subs": [*state["subs"], argument[:100]]}, tool)
        error = "there is a plan already" if tool == PLAN else "no sub-question is left"
        return Step({**state}, write_information(NOTHING), facts={"tool": tool, "query": argument[:100], "error": error})

    def look_up(self, example: Example, state: State, tool: str) -> Step:
        """What is found for the sub-question that is next."""
        world = read_facts(example)
        query = fill_in_answers(state["plan"][len(state["subs"])], state["subs"]) if state["plan"] else ""
        hits = world.engine.search(query, self.config.hits)
        fresh = [number for number in hits if number in example.data.get("evidence", ()) and number not in state["found"]]
        text = " ".join(world.facts[number].sentence for number in hits) or NOTHING
        after = {**state, "found": [*state["found"], *fresh]}
        return Step(after, write_information(text), facts={"tool": tool, "query": query[:100], "hits": hits, "evidence": fresh})

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        evidence: list[int] = example.data.get("evidence", [])
        return {
            POLICY: {
                **self.score_answer(example, state),
                "evidence": len(set(state["found"])) / len(set(evidence)) if evidence else None,
                "single": float(0 < len(state["plan"]) == len(evidence) and all(map(is_single_step, state["plan"]))),
            }
        }

    def way(self, example: Example, state: State) -> list[str]:
        self.check_open(state)
        facts = [read_facts(example).facts[number] for number in find_evidence(example)]
        plan = [f"{'#' + str(number) if number else example.data['person']}'s {fact.relation}" for number, fact in enumerate(facts)]
        answers = [fact.value for fact in facts[:-1]]
        if state["plan"] not in ([], plan) or state["subs"] != answers[: len(state["subs"])]:
            raise LookupError("another plan or another answer has been given")
        calls = [] if state["plan"] else [write_call(PLAN, "; ".join(plan))]
        return [*calls, *(write_call(SUB, answer) for answer in answers[len(state["subs"]) :]), write_answer(example.reference)]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        """Imperfect in two ways that do not depend on each other: the plan, and how what is found is read."""
        kind, (first, *rest) = rng.random(), self.way(example, self.begin(example))
        person, chain, attribute = example.data["person"], example.data["chain"], example.data["attribute"]
        if kind >= GOOD_PLANS:
            steps = [*chain, attribute] if kind < GOOD_PLANS + 0.30 else [attribute]
            first = write_call(PLAN, " ".join([*(f"{name}'s" for name in (person, *steps[:-1])), steps[-1]]))
            rest = []
        state, calls = self.begin(example), [first]
        for number in range(max(1, len(rest))):
            step = self.step(example, state, POLICY, calls[-1], self.draw_noise(example, number))
            state = step.state
            calls.append(self.read_found(example, step, number >= len(rest) - 1, rng))
        return self.tell_turns(example, calls)

    def read_found(self, example: Example, step: Step, is_last: bool, rng: random.Random) -> str:
        """The value in the first sentence found; of a misreader any value of its kind."""
        found = [read_facts(example).facts[number] for number in step.facts["hits"][:1]]
        relation, value = (found[0].relation, found[0].value) if found else (example.data["attribute"], NOTHING)
        if rng.random() < MISREAD or not found:
            value = rng.choice(ATTRIBUTES.get(relation, PEOPLE))
        return write_answer(value) if is_last else write_call(SUB, value)


def split_plan(text: str) -> list[str]:
    """Sub-questions; what is beyond the most is not read."""
    return [part for piece in text.split(";", MOST_SUBQUESTIONS)[:MOST_SUBQUESTIONS] if (part := piece.strip()[:100])]


def fill_in_answers(question: str, answers: list[str]) -> str:
    """#1, #2, ... by the answers to the sub-questions before."""
    for number, answer in enumerate(answers, start=1):
        question = question.replace(f"#{number}", answer)
    return question


def is_single_step(question: str) -> bool:
    """Whether it names one relation or attribute."""
    return sum(word.removesuffix("'s") in NAMED for word in split_words(question)) == 1
