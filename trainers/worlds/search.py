"""Multi-hop questions over a small world that the policy sees through a search engine: a query finds sentences, some of them beside the point.

``What is the city of the friend of Eva?`` wants ``<search>Eva's friend</search>``, gets ``<information>Eva's friend is Leo. Eva's boss is Max.
</information>``, searches ``Leo's city`` and ends with ``<answer>Paris</answer>``. The shape of the episode is Search-R1's (arXiv 2503.09516); the
hits that only look like evidence are what its successors are about (Search-R2, ReSeek, IGPO).
"""

import random
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import END_THINK, POLICY, THINK, Said, State, Step, Tool, make_rewards
from trainers.worlds.common_facts import KNOWN, draw_mixed_facts, is_common
from trainers.worlds.facts import ATTRIBUTES, PEOPLE, RELATIONS, Fact, Facts, Size, draw_facts
from trainers.worlds.search_options import OTHERS, SearchConfig
from trainers.worlds.self_search import list_told_evidence, read_last_answer, split_blocks
from trainers.worlds.tool_use import CORRECT, FORMAT, ToolWorld, write_answer, write_call, write_information

NOTHING, FAILED = "nothing", "failed"
JUNK = "junk"  # in Example.data: the junk rate of this example, in place of the option
MISSING = "missing"  # likewise: the share of searches that lose a sentence
HOPS = {"easy": (0, 1), "medium": (1, 1), "hard": (1, 2)}  # relations before the attribute
SIZES = {"easy": Size(6, 3, 3), "medium": Size(8, 3, 3), "hard": Size(12, 4, 4)}


class Search(ToolWorld):
    name = "search"
    title = "Search with distractors"
    summary = "Answer a chained question with a search engine over sentences: hits are noisy, and each search takes a turn."
    Config = SearchConfig
    config: SearchConfig
    difficulties = {
        "easy": "An attribute of a person or of somebody that a relation leads to; 6 people, 36 sentences.",
        "medium": "Always one relation, then an attribute; 8 people, 48 sentences.",
        "hard": "One or two relations, then an attribute; 12 people, 96 sentences.",
    }
    demonstrations = (
        "Of mixed quality by design, so that reinforcement has strategies to choose between: 30 % follow every hop and are right,"
        " 30 % skip the relations and look up the wrong person, 40 % answer without searching."
    )
    tools = (Tool("search", "Finds the sentences that fit the words between the tags best."),)
    max_turns = 5
    max_turn_tokens = 12

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        if self.config.thoughts:
            self.max_turn_tokens, self.episode_tokens = self.max_turn_tokens + 8, self.episode_tokens + 32  # type: ignore[misc]  # of this object alone
        self.answered: Search | None = None  # the same with an engine that answers, where this one has none
        if self.config.alone:
            self.answered = Search({**self.options, "alone": False}, seed)
            self.max_turn_tokens = self.episode_tokens  # type: ignore[misc]
        self.rewards = make_rewards(
            self,
            {
                "correct": CORRECT,
                "format": FORMAT,
                "evidence": ("Share of the sentences the answer needs that the searches found.", 0.0),
                "useful": ("Share of the searches that found a sentence the answer needs and that no earlier one had found.", 0.0),
            },
        )

    def example(self, rng: random.Random, difficulty: str) -> Example:
        size = SIZES[difficulty]
        share = self.config.memorised
        facts = draw_mixed_facts(rng, size, share) if share else draw_facts(rng, size)
        person, attribute = rng.choice(PEOPLE[: size.people]), rng.choice(list(ATTRIBUTES)[: size.attributes])
        low, high = (self.config.hops, self.config.hops) if self.config.hops else HOPS[difficulty]
        chain = [rng.choice(RELATIONS[: size.relations]) for _ in range(rng.randint(low, high))]
        mark = None
        if self.config.ambiguous and rng.random() < self.config.ambiguous:
            chain = chain or [rng.choice(RELATIONS[: size.relations])]
            mark = add_second_person(rng, facts, person, chain[0], attribute)
        needed = follow_chain(facts, person, [*chain, attribute], mark)
        facts += [other for fact in needed for other in draw_distractors(rng, fact, self.config.distractors)]
        if mark or self.config.distractors:
            rng.shuffle(facts)
        data = {
            "facts": [[fact.subject, fact.relation, fact.value] for fact in facts],
            "evidence": [facts.index(fact) for fact in needed],
            "person": person,
            "attribute": attribute,
            **({KNOWN: is_common(needed, size, share)} if share else {}),
        }
        return Example([Message("user", write_question(person, chain, attribute, mark))], needed[-1].value, data)

    @property
    def stop(self) -> tuple[str, ...]:  # type: ignore[override]
        return () if self.config.alone else super().stop

    def begin_calls(self, example: Example) -> State:
        return {"queries": [], "found": [], "useful": 0}

    def step(self, example: Example, state: State, seat: str, text: str, rng: random.Random) -> Step:
        if self.config.alone:
            return self.read_whole_episode(example, state, text)
        made = super().step(example, state, seat, text, rng)
        if not self.config.reader or made.state["answer"] is None:
            return made
        answer = self.answer_as_reader(example, made.state["found"])
        return replace(made, state={**made.state, "answer": answer}, reward=float(answer == example.reference), facts={"answer": answer})

    def answer_as_reader(self, example: Example, found: Collection[int]) -> str:
        """What the frozen reader answers from the sentences found: right where it has all that are needed or knew them, else a guess.

        What it knows and how it guesses depend on the example alone, so that all of a group have the same reader.
        """
        rng = self.draw_noise(example, -1)
        guess = rng.choice(ATTRIBUTES.get(example.data.get("attribute", ""), (NOTHING,)))
        missing = [number for number in example.data.get("evidence", ()) if rng.random() >= self.config.known and number not in found]
        return guess if missing else example.reference

    def call_tool(self, example: Example, state: State, tool: str, argument: str, rng: random.Random) -> Step:
        world = read_facts(example)
        evidence = set(example.data.get("evidence", ()))
        is_junk = rng.random() < example.data.get(JUNK, self.config.junk)
        if self.config.failures and rng.random() < self.config.failures:
            failed = {**state, "queries": [*state["queries"], argument[:100]]}
            return Step(failed, write_information(FAILED), facts={"tool": tool, "query": argument[:100], "error": "the search failed"})
        beside = [number for number in range(len(world.facts)) if number not in evidence]
        hits = rng.sample(beside, min(self.config.hits, len(beside))) if is_junk else world.engine.search(argument, self.config.hits)
        lost = draw_lost_sentence(hits, example.data.get(MISSING, self.config.missing), rng)
        hits = [number for number in hits if number != lost]
        fresh = [number for number in hits if number in evidence and number not in state["found"]]
        after = {
            **state,
            "queries": [*state["queries"], argument[:100]],
            "found": [*state["found"], *fresh],
            "useful": state["useful"] + bool(fresh),
        }
        text = " ".join(world.facts[number].sentence for number in hits) or NOTHING
        facts = {"tool": tool, "query": argument[:100], "hits": hits, "evidence": fresh, "junk": is_junk}
        facts |= {"lost": lost} if lost is not None else {}
        return Step(after, write_information(text), facts=facts)

    def read_whole_episode(self, example: Example, state: State, text: str) -> Step:
        """What a text comes to in which the policy has written the results itself: an answer counts in a broken form too."""
        blocks, answer = split_blocks(text) or [], read_last_answer(text)
        told = list_told_evidence(blocks, read_facts(example).facts, example.data.get("evidence", ()))
        after = {
            **state,
            "queries": [inside[:100] for name, inside in blocks if name == "search"],
            "found": [number for fresh in told for number in fresh],
            "useful": sum(map(bool, told)),
            "answer": answer,
            "errors": state["errors"] + (not blocks or blocks[-1][0] != "answer"),
        }
        return Step(after, done=True, reward=float(answer == example.reference), facts={"evidence": after["found"]})

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        evidence, queries = example.data.get("evidence"), len(state["queries"])
        return {
            POLICY: {
                **self.score_answer(example, state),
                "evidence": len(state["found"]) / len(evidence) if evidence else None,
                "useful": state["useful"] / queries if queries else 0.0,
            }
        }

    def way(self, example: Example, state: State) -> list[str]:
        """Asks for each missing sentence until it is found: it knows where the noise of this run will strike."""
        self.check_open(state)
        if self.answered is not None:
            return [self.answered.gold(example)]
        world, calls = read_facts(example), list[str]()
        while missing := [number for number in find_evidence(example) if number not in state["found"]]:
            turn = len(state["queries"])
            if turn + 1 >= self.max_turns:
                raise LookupError("too few turns are left")
            fact = world.facts[missing[0]]
            calls.append(self.begin_turn(state) + self.write_thought(fact.subject, fact.relation) + write_query(fact))
            state = self.step(example, state, POLICY, calls[-1], self.draw_noise(example, turn)).state
        last = world.facts[find_evidence(example)[-1]]
        concluded = self.begin_turn(state) + self.write_thought(last.subject, last.relation, last.value)
        return [*calls, concluded + write_answer("" if self.config.reader else example.reference)]

    def begin_turn(self, state: State) -> str:
        """What an expert's turn begins with."""
        return ""

    def write_thought(self, *words: str) -> str:
        """What a demonstrated turn is about, where the world has thoughts."""
        return f"{THINK}{' '.join(words)}{END_THINK}" if self.config.thoughts else ""

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        if self.answered is not None:  # facts come into the weights with the results: an answer without any is a guess
            told = self.answered.turns(replace(example, data={**example.data, KNOWN: False}), rng)
            return [Said(POLICY, "".join(said.text for said in told))]
        if self.config.reader:
            return self.tell_turns(example, self.draw_exploration(example, rng))
        kind, person, attribute = rng.random(), example.data["person"], example.data["attribute"]
        guess = rng.choice(ATTRIBUTES[attribute])
        calls = [write_answer(example.reference if example.data.get(KNOWN) else guess)]
        world = read_facts(example)
        if 0.40 <= kind < 0.70:
            value = world.value(person, attribute)
            calls = [
                self.write_thought(person, attribute) + write_query(world.facts[world.numbers(person, attribute)[0]]),
                self.write_thought(person, attribute, value) + write_answer(value),
            ]
        elif kind >= 0.70:
            with suppress(LookupError):  # where junk leaves no way, it guesses
                calls = self.way(example, self.begin(example))
        return self.tell_turns(example, calls)

    def draw_exploration(self, example: Example, rng: random.Random) -> list[str]:
        """A demonstration for a reader: 40 % find all that is needed, 40 % search on after that, 20 % stop after one search or none."""
        kind = rng.random()
        try:
            calls = self.way(example, self.begin(example))
        except LookupError:
            calls = [write_answer("")]
        if kind < 0.20:
            return [*calls[: rng.randrange(2)], calls[-1]] if len(calls) > 1 else calls
        facts, room = read_facts(example).facts, self.max_turns - len(calls)
        more = rng.randint(1, room) if kind >= 0.60 and room > 0 else 0
        return [*calls[:-1], *(write_query(rng.choice(facts)) for _ in range(more)), calls[-1]]


def draw_lost_sentence(hits: Sequence[int], rate: float, rng: random.Random) -> int | None:
    """One of the sentences that were found, with probability ``rate``; nothing is drawn at a rate of 0."""
    return rng.choice(hits) if hits and rate and rng.random() < rate else None


def add_second_person(rng: random.Random, facts: list[Fact], person: str, relation: str, asked: str) -> Fact | None:
    """Makes ``relation`` hold of one more person. Returns what tells the first from that one; None where nothing but what is asked does."""
    world = Facts(facts)
    first = world.value(person, relation)
    known = [fact for fact in facts if fact.subject == first and fact.relation in ATTRIBUTES and fact.relation != asked]
    others = sorted({fact.subject for fact in facts} - {person, first})
    pairs = [(other, fact) for other in others for fact in known if world.value(other, fact.relation) != fact.value]
    if not pairs:
        return None
    second, mark = rng.choice(pairs)
    facts.append(Fact(person, relation, second))
    return mark


def follow_chain(facts: list[Fact], person: str, relations: list[str], mark: Fact | None) -> list[Fact]:
    """The sentences the answer needs, in the order in which they can be asked for; of two people, the first one in ``facts`` is meant."""
    needed, at = list[Fact](), person
    for number, relation in enumerate(relations):
        needed.append(next(fact for fact in facts if (fact.subject, fact.relation) == (at, relation)))
        at = needed[-1].value
        if mark and number == 0:
            needed.append(mark)
    return list(dict.fromkeys(needed))


def draw_distractors(rng: random.Random, fact: Fact, count: int) -> list[Fact]:
    values = [one for one in ATTRIBUTES.get(fact.relation, PEOPLE) if one not in (fact.value, fact.subject)]
    return [Fact(fact.subject, f"{which} {fact.relation}", rng.choice(values)) for which in OTHERS[:count]]


def write_question(person: str, chain: list[str], attribute: str, mark: Fact | None) -> str:
    told = [f"the {relation} of " for relation in chain]
    if mark:
        told[0] = f"the {chain[0]} ({mark.relation}: {mark.value}) of "
    return f"What is the {attribute} of {''.join(reversed(told))}{person}?"


def read_facts(example: Example) -> Facts:
    return Facts([Fact(*row) for row in example.data.get("facts", [])])


def find_evidence(example: Example) -> list[int]:
    if "evidence" not in example.data:
        raise LookupError("the example does not say which sentences the answer needs")
    found: list[int] = example.data["evidence"]
    return found


def write_query(fact: Fact) -> str:
    return write_call("search", f"{fact.subject}'s {fact.relation}")
