"""Masked paragraphs to be filled with a search engine: short sentences in some of which a word is left out.

``Fill in: Eva's friend is _. Leo's city is Rome. Ida's pet is _.`` wants a search for each blank and its word after that:
``<search>Eva's friend</search>``, ``<fill>Leo</fill>`` (the world says how many blanks are left), and so on to an empty ``<answer></answer>``: the
answer is what was filled in, in order. The task is MaskSearch's retrieval-augmented mask prediction (arXiv 2505.20285) over sentences of the world
``search``.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, State, Step, Tool, make_rewards
from trainers.worlds.facts import ATTRIBUTES, PEOPLE, Fact, Size, draw_facts
from trainers.worlds.search import NOTHING, read_facts, write_query
from trainers.worlds.tool_use import CORRECT, FORMAT, ToolWorld, write_answer, write_call, write_information

SENTENCES = 4  # of a paragraph
BLANK, FILL = "_", "fill"
SIZES = {"easy": Size(6, 2, 2), "medium": Size(8, 3, 3), "hard": Size(12, 4, 4)}
FEW = 2  # masks up to which demonstrations are often whole
WHOLE_FEW, WHOLE_MANY = 0.5, 0.2  # share of whole demonstrations with few and with more masks


class ParagraphsConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    masks: int = Field(0, ge=0, le=SENTENCES, title="Masks", description="Words left out of a paragraph of four sentences; 0 = 1 to 4.")
    hits: int = Field(1, ge=1, le=4, title="Hits", description="Sentences that a search finds; each takes some 7 tokens of the context.")


class Paragraphs(ToolWorld):
    name = "paragraphs"
    title = "Masked paragraphs"
    summary = "Fill in the words that are left out of a paragraph, with a search engine over sentences; each search takes a turn."
    Config = ParagraphsConfig
    config: ParagraphsConfig
    difficulties = {
        "easy": "6 people, 24 sentences to search.",
        "medium": "8 people, 48 sentences.",
        "hard": "12 people, 96 sentences.",
    }
    demonstrations = (
        "Of mixed quality by design: with one or two masks half of them look up every word, with three or four one in five; the others look up some"
        " and guess the rest."
    )
    tools = (
        Tool("search", "Finds the sentences that fit the words between the tags best."),
        Tool(FILL, "Fills in the first blank that is left."),
    )
    max_turns = 2 * SENTENCES + 1
    max_turn_tokens = 16
    episode_tokens = 144

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.rewards = make_rewards(
            self,
            {
                "correct": ("1 when every word that is left out is right.", CORRECT[1]),
                "format": FORMAT,
                "spans": ("Share of the words left out that are right, by their place.", 0.0),
                "evidence": ("Share of the masked sentences that the searches found.", 0.0),
            },
        )

    def example(self, rng: random.Random, difficulty: str) -> Example:
        facts = draw_facts(rng, SIZES[difficulty])
        paragraph = rng.sample(range(len(facts)), SENTENCES)
        masked = sorted(rng.sample(range(SENTENCES), self.config.masks or rng.randint(1, SENTENCES)))
        return write_example([[fact.subject, fact.relation, fact.value] for fact in facts], paragraph, masked)

    def draw_demonstrations(self, count: int, seed: int, difficulty: str) -> list[Example]:
        """With any number of masks up to the example's own: what is learnt in stages has to be begun with."""
        rng = random.Random(f"{self.name}/masks/{seed}")
        return [unmask_example(example, rng.randint(1, count_masks(example))) for example in super().draw_demonstrations(count, seed, difficulty)]

    def begin_calls(self, example: Example) -> State:
        return {"queries": [], "found": [], "filled": []}

    def step(self, example: Example, state: State, seat: str, text: str, rng: random.Random) -> Step:
        made = super().step(example, state, seat, text, rng)
        if made.state["answer"] is None:
            return made
        answer = " ".join(made.state["filled"])
        return replace(made, state={**made.state, "answer": answer}, reward=float(answer == example.reference), facts={"answer": answer})

    def call_tool(self, example: Example, state: State, tool: str, argument: str, rng: random.Random) -> Step:
        if tool == FILL:
            filled = [*state["filled"], "".join(argument.split())[:100]]
            return Step({**state, "filled": filled}, write_information(max(0, count_masks(example) - len(filled))), facts={"filled": filled[-1]})
        world = read_facts(example)
        hits = world.engine.search(argument, self.config.hits)
        fresh = [number for number in hits if number in example.data.get("evidence", ()) and number not in state["found"]]
        after = {**state, "queries": [*state["queries"], argument[:100]], "found": [*state["found"], *fresh]}
        text = " ".join(world.facts[number].sentence for number in hits) or NOTHING
        return Step(after, write_information(text), facts={"tool": tool, "query": argument[:100], "hits": hits, "evidence": fresh})

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        evidence = example.data.get("evidence")
        return {
            POLICY: {
                **self.score_answer(example, state),
                "spans": score_spans(state["answer"] or "", example.reference),
                "evidence": len(state["found"]) / len(evidence) if evidence else None,
            }
        }

    def way(self, example: Example, state: State) -> list[str]:
        self.check_open(state)
        if "evidence" not in example.data:
            raise LookupError("the example does not say which sentences are masked")
        words, filled = example.reference.split(), state["filled"]
        if filled != words[: len(filled)]:
            raise LookupError("a wrong word has been filled in")
        calls = []
        for number, word in list(zip(example.data["evidence"], words, strict=True))[len(filled) :]:
            calls += [] if number in state["found"] else [write_query(read_facts(example).facts[number])]
            calls.append(write_call(FILL, word))
        if len(state["queries"]) + len(filled) + len(calls) >= self.max_turns:
            raise LookupError("too few turns are left")
        return [*calls, write_answer("")]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        way, facts = self.way(example, self.begin(example)), [read_facts(example).facts[number] for number in example.data["evidence"]]
        if rng.random() < (WHOLE_FEW if len(facts) <= FEW else WHOLE_MANY):
            return self.tell_turns(example, way)
        known = rng.randrange(len(facts))
        guesses = [write_call(FILL, rng.choice(ATTRIBUTES.get(fact.relation, PEOPLE))) for fact in facts[known:]]
        return self.tell_turns(example, [*way[: 2 * known], *guesses, way[-1]])


def write_example(facts: list[list[str]], paragraph: Sequence[int], masked: Sequence[int]) -> Example:
    """``paragraph``: numbers of its sentences in their order; ``masked``: places in it whose word is left out."""
    chosen = [Fact(*facts[number]) for number in paragraph]
    sentences = [f"{one.subject}'s {one.relation} is {BLANK if place in masked else one.value}." for place, one in enumerate(chosen)]
    data = {"facts": facts, "paragraph": list(paragraph), "masked": list(masked), "evidence": [paragraph[place] for place in masked]}
    reference = " ".join(chosen[place].value for place in masked)
    return Example([Message("user", f"Fill in: {' '.join(sentences)}")], reference, data)


def count_masks(example: Example) -> int:
    return len(example.data.get("masked", ()))


def unmask_example(example: Example, masks: int) -> Example:
    """The same paragraph with its first ``masks`` masks alone."""
    return write_example(example.data["facts"], example.data["paragraph"], example.data["masked"][:masks])


def score_spans(answer: str, reference: str) -> float:
    """Share of the reference's words that stand in the answer at their place: every span of this world is one word."""
    said, right = answer.split(), reference.split()
    return sum(one == other for one, other in zip(said, right, strict=False)) / len(right) if right else 0.0
