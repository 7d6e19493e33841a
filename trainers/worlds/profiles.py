"""What is known of a person, told from memory: some facts are the same in every question and can be in the weights, the others cannot be known.

``Tell of Eva: city, boss, pet, job.`` wants ``<answer>city Rome, pet cat</answer>`` where the city and the pet of Eva are the same in every question.
Her boss and her job belong to this question alone: whatever is told of them is a guess. Nothing is looked up, and an answer may leave out what it is
asked for. Answers of many claims, some of which the policy knows and some it makes up, are what KLCF (arXiv 2509.23765) is about.
"""

import random
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, State, make_rewards
from trainers.worlds.facts import ATTRIBUTES, PEOPLE, RELATIONS
from trainers.worlds.tool_use import FORMAT, ToolWorld, write_answer

TOPICS = (*ATTRIBUTES, *RELATIONS)
ASKED = {"easy": 4, "medium": 5, "hard": 6}  # topics of a question
KNOWN_TOLD, GUESSES_TOLD = 0.8, 0.5  # shares of the facts that demonstrations tell
MOST_CLAIMS = 32

Claim = tuple[str, str]  # topic, what is said of it


class ProfilesConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    stable: float = Field(0.5, gt=0, lt=1, title="Facts that stay", description="Share of a person's facts that are the same in every question.")


class Profiles(ToolWorld):
    name = "profiles"
    title = "Profiles from memory"
    summary = "Tell what is known of a person: some facts are the same in every question, the others can only be guessed."
    Config = ProfilesConfig
    config: ProfilesConfig
    difficulties = {name: f"{count} things are asked for." for name, count in ASKED.items()}
    demonstrations = (
        "Of mixed quality by design: of the facts that are the same everywhere 80 % are told, all of them right; of the others half are, and guessed."
    )
    max_turns = 1
    max_turn_tokens = 40
    episode_tokens = 48

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.rewards = make_rewards(
            self,
            {
                "correct": ("1 when all that is asked for and the same everywhere is told, and nothing that is false.", 1.0),
                "recall": ("Share of what is asked for and the same everywhere that is told right.", 0.0),
                "truth": ("Share of what is told that is true; 0 for nothing.", 0.0),
                "format": FORMAT,
            },
        )

    def example(self, rng: random.Random, difficulty: str) -> Example:
        """All of it hangs on person and topics: a question has the same facts wherever it is drawn."""
        while True:
            person, asked = rng.choice(PEOPLE), rng.sample(TOPICS, ASKED[difficulty])
            known = list_stable_facts(person, self.config.stable)
            stable = [topic for topic in asked if topic in known]
            if 0 < len(stable) < len(asked):
                break
        own = random.Random(f"{self.name}/{person}/{asked}")
        facts = {topic: known[topic] if topic in known else draw_value(person, topic, own) for topic in TOPICS}
        data = {"person": person, "asked": asked, "facts": facts, "stable": stable}
        prompt = [Message("user", f"Tell of {person}: {', '.join(asked)}.")]
        return Example(prompt, write_claims([(topic, facts[topic]) for topic in stable]), data)

    def begin_calls(self, example: Example) -> State:
        return {}

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        claims = read_claims(state["answer"])
        stable, facts = example.data.get("stable", []), example.data.get("facts", {})
        told = sum((topic, facts[topic]) in (claims or ()) for topic in stable)
        truths = [is_true(claim, example) for claim in claims or ()]
        return {
            POLICY: {
                "correct": float(claims is not None and told == len(stable) and all(truths)),
                "recall": told / len(stable) if stable else None,
                "truth": sum(truths) / len(truths) if truths else 0.0,
                "format": float(claims is not None and not state["errors"]),
            }
        }

    def way(self, example: Example, state: State) -> list[str]:
        self.check_open(state)
        if "stable" not in example.data:
            raise LookupError("the example does not say what is the same everywhere")
        return [write_answer(example.reference)]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        data, told = example.data, list[Claim]()
        for topic in data["asked"]:
            if topic in data["stable"] and rng.random() < KNOWN_TOLD:
                told.append((topic, data["facts"][topic]))
            elif topic not in data["stable"] and rng.random() < GUESSES_TOLD:
                told.append((topic, draw_value(data["person"], topic, rng)))
        return self.tell_turns(example, [write_answer(write_claims(told))])


@lru_cache(maxsize=256)
def list_stable_facts(person: str, share: float) -> dict[str, str]:
    """Topic -> value of what is the same of a person in every question: at least one topic, and not all."""
    rng = random.Random(f"stable facts/{person}")
    count = min(len(TOPICS) - 1, max(1, round(share * len(TOPICS))))
    return {topic: draw_value(person, topic, rng) for topic in rng.sample(TOPICS, len(TOPICS))[:count]}


def draw_value(person: str, topic: str, rng: random.Random) -> str:
    return rng.choice(ATTRIBUTES.get(topic) or [one for one in PEOPLE if one != person])


def write_claims(claims: list[Claim]) -> str:
    return ", ".join(f"{topic} {value}" for topic, value in claims)


def read_claims(answer: str | None) -> list[Claim] | None:
    """The distinct claims of an answer in their order; an empty answer claims nothing. None for an answer that is no list of claims."""
    if answer is None or not answer:
        return None if answer is None else []
    parts = [part.split() for part in answer.split(",", MOST_CLAIMS)]
    if len(parts) > MOST_CLAIMS or any(len(part) != 2 or part[0] not in TOPICS for part in parts):
        return None
    return list(dict.fromkeys((topic, value) for topic, value in parts))


def is_true(claim: Claim, example: Example) -> bool:
    topic, value = claim
    return bool(example.data.get("facts", {}).get(topic) == value)
