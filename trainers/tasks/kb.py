"""Multi-hop questions over a small world that the policy can only see by searching it, one fact a turn.

``What is the city of the friend of Eva?`` wants ``<search>Eva friend</search>``, gets ``<information>Leo</information>`` from the world, searches
``Leo city`` and ends with ``<answer>Paris</answer>``. Every example has facts of its own, so nothing can be learnt by heart. The shape of the
episode is Search-R1's (arXiv 2503.09516).
"""

import random
from dataclasses import dataclass

from trainers.contract.events import Message
from trainers.tasks import answers
from trainers.tasks.base import Example, Reward, Task

SEARCH, END_SEARCH = "<search>", "</search>"
INFORMATION, END_INFORMATION = "<information>", "</information>"
UNKNOWN = "none"

PEOPLE = ("Mia", "Leo", "Zoe", "Max", "Ana", "Tom", "Eva", "Sam", "Ida", "Ben", "Kim", "Ned")
RELATIONS = ("friend", "boss", "sister", "coach", "cousin")
ATTRIBUTES = {
    "city": ("Rome", "Oslo", "Lima", "Cairo", "Delhi", "Paris"),
    "pet": ("cat", "dog", "fox", "owl", "frog", "hen"),
    "food": ("rice", "soup", "fish", "cake", "corn", "plum"),
    "job": ("cook", "nurse", "pilot", "baker", "judge", "clerk"),
    "sport": ("golf", "judo", "chess", "polo", "darts", "squash"),
}


@dataclass(frozen=True)
class World:
    """How much of the lists above an example uses, and how many relations its question chains."""

    people: int
    relations: int
    attributes: int
    chain: tuple[int, int]


WORLDS = {
    "easy": World(people=8, relations=3, attributes=3, chain=(1, 2)),
    "medium": World(people=8, relations=3, attributes=3, chain=(2, 2)),
    "hard": World(people=12, relations=5, attributes=5, chain=(2, 2)),
}


def look_up(example: Example, key: str) -> str:
    facts: dict[str, str] = example.data.get("facts", {})
    return f"{INFORMATION}{facts.get(key.strip(), UNKNOWN)}{END_INFORMATION}"


def parse_episode(text: str, example: Example) -> tuple[list[str], str] | None:
    """(keys searched, answer) of a whole episode; None unless it is searches, each followed by the world's own answer, and one final answer."""
    rest, keys = text.strip(), list[str]()
    while rest.startswith(SEARCH):
        key, closed, rest = rest[len(SEARCH) :].partition(END_SEARCH)
        found = look_up(example, key)
        if not closed or "<" in key or not rest.startswith(found):
            return None
        keys.append(key.strip())
        rest = rest[len(found) :]
        if len(keys) > Kb.max_turns:
            return None
    if not (rest.startswith(answers.ANSWER) and rest.endswith(answers.END_ANSWER)):
        return None
    answer = rest[len(answers.ANSWER) : -len(answers.END_ANSWER)]
    return (keys, answer.strip()) if "<" not in answer else None


def write_episode(keys: list[str], answer: str, example: Example) -> str:
    searches = "".join(f"{SEARCH}{key}{END_SEARCH}{look_up(example, key)}" for key in keys)
    return f"{searches}{answers.ANSWER}{answer}{answers.END_ANSWER}"


def write_gold_answer(example: Example) -> str:
    return write_episode(example.data["hops"], example.reference, example)


def score_correctness(text: str, example: Example) -> float:
    parts = parse_episode(text, example)
    return float(parts is not None and parts[1] == example.reference)


def well_formed(text: str, example: Example) -> float:
    return float(parse_episode(text, example) is not None)


def score_brevity(text: str, example: Example) -> float | None:
    if "hops" not in example.data:
        return None
    return answers.score_relative_brevity(text, write_gold_answer(example), score_correctness, example)


def score_searches(text: str, example: Example) -> float | None:
    """Share of the facts on the way to the answer that were looked up."""
    if "hops" not in example.data:
        return None
    parts = parse_episode(text, example)
    hops: list[str] = example.data["hops"]
    return len(set(hops) & set(parts[0])) / len(set(hops)) if parts else 0.0


class Kb(Task):
    name = "kb"
    title = "Multi-hop look-up"
    summary = "Answer a chained question by searching a small world, one fact a turn; facts differ in every example."
    difficulties = {
        "easy": "One or two relations, then an attribute; 8 people, 48 facts.",
        "medium": "Always two relations, then an attribute; 8 people, 48 facts.",
        "hard": "Always two relations, then an attribute; 12 people, 120 facts and more words to know.",
    }
    rewards = {
        "correct": Reward(score_correctness, "1 when the episode is well formed and the answer is exactly right.", 1.0),
        "format": Reward(well_formed, "1 for searches with the world's own answers, then one final <answer>.", 0.0),
        "brevity": Reward(score_brevity, "Correct answers only: 1 up to the gold length, 0 from twice that on.", 0.0),
        "searches": Reward(score_searches, "Share of the facts on the way to the answer that were looked up.", 0.0),
    }
    demonstrations = (
        "Of mixed quality by design, so that reinforcement has strategies to choose between: 25 % follow every hop and are right,"
        " 35 % skip the relations and look up the wrong person, 40 % answer without searching."
    )
    stop = (END_SEARCH,)
    max_turns = 4
    max_turn_tokens = 10

    def example(self, rng: random.Random, difficulty: str) -> Example:
        world = WORLDS[difficulty]
        people, relations = PEOPLE[: world.people], RELATIONS[: world.relations]
        attributes = list(ATTRIBUTES)[: world.attributes]
        facts = {f"{who} {relation}": rng.choice([other for other in people if other != who]) for who in people for relation in relations}
        facts |= {f"{who} {attribute}": rng.choice(ATTRIBUTES[attribute]) for who in people for attribute in attributes}
        person, attribute = rng.choice(people), rng.choice(attributes)
        chain = [rng.choice(relations) for _ in range(rng.randint(*world.chain))]
        hops, at = list[str](), person
        for relation in chain:
            hops.append(f"{at} {relation}")
            at = facts[hops[-1]]
        hops.append(f"{at} {attribute}")
        question = f"What is the {attribute} of the {' of the '.join(reversed(chain))} of {person}?"
        data = {"facts": facts, "hops": hops, "person": person, "attribute": attribute}
        return Example([Message("user", question)], facts[hops[-1]], data)

    def gold(self, example: Example) -> str:
        return write_gold_answer(example)

    def demonstration(self, example: Example, rng: random.Random) -> str:
        kind, attribute = rng.random(), example.data["attribute"]
        if kind < 0.40:
            return write_episode([], rng.choice(ATTRIBUTES[attribute]), example)
        if kind < 0.75:
            key = f"{example.data['person']} {attribute}"
            return write_episode([key], example.data["facts"][key], example)
        return write_gold_answer(example)

    def respond(self, example: Example, text: str) -> str | None:
        if not text.endswith(END_SEARCH):
            return None
        return look_up(example, text[: -len(END_SEARCH)].rpartition(SEARCH)[2])
