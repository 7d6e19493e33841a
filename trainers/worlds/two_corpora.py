"""Chained questions over two corpora: who is whose friend or boss stands in the local one, what is true of people in the web.

``What is the city of the friend of Eva?`` wants ``<local>Eva's friend</local>`` and then ``<web>Leo's city</web>``. With the option ``agents`` a
frozen agent answers for each corpus: it follows a chain such as ``Eva's friend's boss``, searches again where a search was noise, and returns its
conclusion with refined evidence, as HierSearch's low-level agents do (arXiv 2508.08088).
"""

import math
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, State, Step, Tool, make_rewards
from trainers.worlds.facts import ATTRIBUTES, PEOPLE, RELATIONS, Fact, Facts, Size, draw_facts, split_words
from trainers.worlds.search import NOTHING, find_evidence, read_facts, write_question
from trainers.worlds.tool_use import CORRECT, FORMAT, ToolWorld, write_answer, write_call, write_information

LOCAL, WEB = "local", "web"
HOPS = {"easy": (1, 2), "medium": (1, 2), "hard": (2, 2)}  # relations before the attribute
SIZES = {"easy": Size(6, 3, 3), "medium": Size(8, 3, 3), "hard": Size(12, 4, 4)}
TRIES = 3  # searches of an agent for one step of a chain
LONGEST_CHAIN = 4  # steps that an agent follows
KEPT = 0.3  # share of the evidence that an agent did not use and still returns, at least one sentence


class TwoCorporaConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    agents: bool = Field(False, title="Agents", description="A frozen agent searches each corpus as often as it needs, in place of single searches.")
    hits: int = Field(2, ge=1, le=4, title="Hits", description="Sentences that a search finds; each takes some 7 tokens of the context.")
    junk: float = Field(
        0.0, ge=0, le=1, title="Junk rate", description="Share of searches that find sentences beside the point only, the same for all of a group."
    )


class TwoCorpora(ToolWorld):
    name = "two_corpora"
    title = "Two corpora"
    summary = "Answer a chained question from two corpora with a tool each; a frozen agent may search each of them for the policy."
    Config = TwoCorporaConfig
    config: TwoCorporaConfig
    difficulties = {
        "easy": "One or two relations, then an attribute; 6 people, 36 sentences.",
        "medium": "One or two relations, then an attribute; 8 people, 48 sentences.",
        "hard": "Two relations, then an attribute; 12 people, 96 sentences.",
    }
    demonstrations = (
        "Of mixed quality by design: 30 % ask both corpora and are right, 30 % skip the relations and ask the web about the wrong person, 40 % answer"
        " without asking."
    )
    tools = (Tool(LOCAL, "Asks the corpus of who is whose friend, boss and so on."), Tool(WEB, "Asks the corpus of what is true of people."))
    max_turns = 5
    max_turn_tokens = 16
    episode_tokens = 128

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.rewards = make_rewards(
            self,
            {
                "correct": CORRECT,
                "format": FORMAT,
                "evidence": ("Share of the sentences the answer needs that were found.", 0.0),
                "both": ("Share of the two tools that were used.", 0.0),
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
            "evidence": list(dict.fromkeys(needed)),
            "person": person,
            "chain": chain,
            "attribute": attribute,
        }
        return Example([Message("user", write_question(person, chain, attribute, None))], at, data)

    def begin_calls(self, example: Example) -> State:
        return {"queries": [], "found": [], "tools": [], "conclusions": {}}

    def call_tool(self, example: Example, state: State, tool: str, argument: str, rng: random.Random) -> Step:
        corpus = self.open_corpus(example, tool)
        facts = read_facts(example).facts
        conclusions = state["conclusions"]
        if self.config.agents:
            report = self.ask_agent(corpus, argument[:100], rng)
            kept = refine_evidence(corpus, report, conclusions.get(WEB if tool == LOCAL else LOCAL, ""))
            shown = " ".join([report.conclusion or NOTHING, *(corpus.facts[number].sentence for number in kept)])
            conclusions, hits = {**conclusions, tool: report.conclusion}, [facts.index(corpus.facts[number]) for number in kept]
            told = {"searches": report.searches}
        else:
            found, is_junk = self.search_once(corpus, argument, rng)
            shown = " ".join(corpus.facts[number].sentence for number in found) or NOTHING
            hits, told = [facts.index(corpus.facts[number]) for number in found], {"junk": is_junk}
        fresh = [number for number in hits if number in example.data.get("evidence", ()) and number not in state["found"]]
        after = {
            **state,
            "queries": [*state["queries"], argument[:100]],
            "found": [*state["found"], *fresh],
            "tools": sorted({*state["tools"], tool}),
            "conclusions": conclusions,
        }
        return Step(after, write_information(shown), facts={"tool": tool, "query": argument[:100], "hits": hits, "evidence": fresh, **told})

    def open_corpus(self, example: Example, tool: str) -> Facts:
        return Facts([fact for fact in read_facts(example).facts if (fact.relation in ATTRIBUTES) == (tool == WEB)])

    def search_once(self, corpus: Facts, query: str, rng: random.Random) -> tuple[list[int], bool]:
        """(numbers of the sentences found, whether they are noise)."""
        if rng.random() >= self.config.junk:
            return corpus.engine.search(query, self.config.hits), False
        return rng.sample(range(len(corpus.facts)), min(self.config.hits, len(corpus.facts))), True

    def ask_agent(self, corpus: Facts, question: str, rng: random.Random) -> "Report":
        """A frozen agent by rule: it follows the chain of a question through its corpus and searches again where it does not find the next step."""
        names = [word.removesuffix("'s") for word in question.split()[: LONGEST_CHAIN + 1]]
        report = Report()
        at = names[0] if names else ""
        for relation in names[1:]:
            step = None
            for _ in range(TRIES):
                found, _ = self.search_once(corpus, f"{at}'s {relation}", rng)
                report.searches += 1
                report.seen += [number for number in found if number not in report.seen]
                step = next((number for number in found if (corpus.facts[number].subject, corpus.facts[number].relation) == (at, relation)), None)
                if step is not None:
                    break
            if step is None:
                return report
            report.used.append(step)
            at = corpus.facts[step].value
        report.conclusion = at if report.used else ""
        return report

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        evidence = example.data.get("evidence")
        return {
            POLICY: {
                **self.score_answer(example, state),
                "evidence": len(state["found"]) / len(evidence) if evidence else None,
                "both": len(state["tools"]) / len(self.tools),
            }
        }

    def way(self, example: Example, state: State) -> list[str]:
        """Asks for what is missing until it is found: it knows where the noise of this run will strike."""
        self.check_open(state)
        facts, calls = read_facts(example).facts, list[str]()
        while missing := [number for number in find_evidence(example) if number not in state["found"]]:
            turn = len(state["queries"])
            if turn + 1 >= self.max_turns:
                raise LookupError("too few turns are left")
            calls.append(self.write_expert_call(example, facts[missing[0]]))
            state = self.step(example, state, POLICY, calls[-1], self.draw_noise(example, turn)).state
        return [*calls, write_answer(example.reference)]

    def write_expert_call(self, example: Example, fact: Fact) -> str:
        """To an agent the whole chain of relations at once, to a search one step of it."""
        if fact.relation in ATTRIBUTES:
            return write_call(WEB, f"{fact.subject}'s {fact.relation}")
        if self.config.agents:
            *before, last = example.data["chain"]
            return write_call(LOCAL, " ".join([*(f"{name}'s" for name in (example.data["person"], *before)), last]))
        return write_call(LOCAL, f"{fact.subject}'s {fact.relation}")

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        kind, person, attribute = rng.random(), example.data["person"], example.data["attribute"]
        calls = [write_answer(rng.choice(ATTRIBUTES[attribute]))]
        if 0.40 <= kind < 0.70:
            calls = [write_call(WEB, f"{person}'s {attribute}"), write_answer(read_facts(example).value(person, attribute))]
        elif kind >= 0.70:
            with suppress(LookupError):  # where junk leaves no way, it guesses
                calls = self.way(example, self.begin(example))
        return self.tell_turns(example, calls)


@dataclass
class Report:
    """What an agent found, as numbers of sentences of its corpus. ``conclusion`` is empty where it could not follow the chain."""

    conclusion: str = ""
    used: list[int] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    searches: int = 0


def refine_evidence(corpus: Facts, report: Report, other: str) -> list[int]:
    """The sentences used, and of the others the ``KEPT`` nearest to this agent's conclusion and to ``other``, the other agent's."""
    rest = [number for number in report.seen if number not in report.used]
    sentences = [corpus.facts[number].sentence for number in rest]
    nearness = [sum(pair) for pair in zip(scale_similarities(sentences, report.conclusion), scale_similarities(sentences, other), strict=True)]
    best = sorted(range(len(rest)), key=lambda place: (-nearness[place], place))[: count_kept(len(rest))]
    return [*report.used, *(rest[place] for place in best)]


def count_kept(rest: int) -> int:
    """How many of ``rest`` sentences stay: their share, at least one where there is one."""
    return min(rest, max(1, int(KEPT * rest)))


def scale_similarities(sentences: Sequence[str], conclusion: str) -> list[float]:
    """Cosines of the counts of words with the conclusion, spread over 0 to 1; all 0 where they do not differ."""
    found = [compute_cosine(split_words(sentence), split_words(conclusion)) for sentence in sentences]
    low, high = min(found, default=0.0), max(found, default=0.0)
    return [(one - low) / (high - low) if high > low else 0.0 for one in found]


def compute_cosine(words: Sequence[str], others: Sequence[str]) -> float:
    first, second = Counter(words), Counter(others)
    length = math.sqrt(sum(count**2 for count in first.values()) * sum(count**2 for count in second.values()))
    return sum(first[word] * second[word] for word in first) / length if length else 0.0
