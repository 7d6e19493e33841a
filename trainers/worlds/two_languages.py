"""The word problems of mini_gsm in two languages: the sums are the same, only the words say which way they go.

``Max has 3 apples, gets 3, drops 1. How many?`` and ``Max havas 3 pomojn, ricevas 3, faligas 1. Kiom?`` both want
``<think>3+3=6 6-1=5</think><answer>5</answer>``. With the option ``language`` all that is trained on is in one of them, while the held-out prompts
are in both and scored apart: what a gain in one language is worth in the other is the question of arXiv 2509.23657. Two lists of words stand for
the languages of the paper, and the working is in digits, so that the language of the reasoning cannot be measured here.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from trainers.contract.events import Message
from trainers.tasks import mini_gsm
from trainers.tasks.base import Example, Split, digest_example
from trainers.worlds.base import POLICY, Said, State, make_rewards
from trainers.worlds.tool_use import CORRECT, FORMAT, ToolWorld


@dataclass(frozen=True)
class Language:
    """``items`` and the verbs are in the same order in every language: a problem is drawn once and written in either."""

    has: str
    ask: str
    items: tuple[str, ...]
    gains: tuple[str, ...]
    losses: tuple[str, ...]


LANGUAGES = {
    "english": Language("has", "How many?", mini_gsm.ITEMS, mini_gsm.GAINS, mini_gsm.LOSSES),
    "esperanto": Language(
        "havas",
        "Kiom?",
        ("pomojn", "monerojn", "librojn", "kartojn", "plumojn", "konkojn", "ovojn", "markojn"),
        ("kupas", "trovas", "ricevas", "gajnas"),
        ("fordonas", "perdas", "vendas", "faligas"),
    ),
}
ENGLISH, BOTH = "english", "both"
STORIES = mini_gsm.MiniGsm()


class TwoLanguagesConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    language: Literal["both", "english", "esperanto"] = Field(
        "both",
        title="Trained language",
        description="Of all prompts and demonstrations for training; held-out prompts are in both. With one language, demonstrations are right.",
    )


class TwoLanguages(ToolWorld):
    name = "two_languages"
    title = "Word problems in two languages"
    summary = "Keep a running total through a short story, told in English or in Esperanto, and see what training on one does for the other."
    Config = TwoLanguagesConfig
    config: TwoLanguagesConfig
    difficulties = STORIES.difficulties
    demonstrations = STORIES.demonstrations
    max_turns = 1
    max_turn_tokens = 96
    episode_tokens = 96

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        columns = {name: (f"The same, of prompts in {name.capitalize()} alone.", 0.0) for name in LANGUAGES}
        trained = ("The same, of prompts in the trained language alone.", 0.0)
        self.rewards = make_rewards(self, {"correct": CORRECT, **columns, "trained": trained, "format": FORMAT})

    @property
    def start_options(self) -> dict[str, Any]:
        """Those of the cold start: the first policy has seen both languages, whichever is trained afterwards."""
        return {name: value for name, value in self.options.items() if name != "language"}

    def examples(self, split: Split, count: int, seed: int, difficulty: str) -> list[Example]:
        """The same problems whatever is trained. They are drawn in English and divided before they are translated, so that none is held out in one
        language and trained on in the other.
        """
        drawn = super().examples(split, count, seed, difficulty)
        chosen = BOTH if split == "heldout" else self.config.language
        return [write_problem(example.data, pick_language(example) if chosen == BOTH else chosen) for example in drawn]

    def example(self, rng: random.Random, difficulty: str) -> Example:
        sizes = mini_gsm.SIZES[difficulty]
        start = total = rng.randint(*sizes.start)
        changes, verbs = list[int](), list[int]()
        for _ in range(rng.randint(*sizes.steps)):
            size = rng.randint(*sizes.change)
            loses = rng.random() < 0.5 and total - size >= 1
            changes.append(-size if loses else size)
            verbs.append(rng.randrange(len(mini_gsm.LOSSES if loses else mini_gsm.GAINS)))
            total += changes[-1]
        told = {"who": rng.choice(mini_gsm.NAMES), "item": rng.randrange(len(mini_gsm.ITEMS)), "verbs": verbs}
        return write_problem({"start": start, "changes": changes, **told}, ENGLISH)

    def begin_calls(self, example: Example) -> State:
        return {}

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        scores = self.score_answer(example, state)
        language = example.data.get("language")
        of_language = {name: scores["correct"] if name == language else None for name in LANGUAGES}
        trained = scores["correct"] if self.config.language in (BOTH, language) else None
        return {POLICY: {**scores, **of_language, "trained": trained}}

    def way(self, example: Example, state: State) -> list[str]:
        self.check_open(state)
        if "changes" not in example.data:
            raise LookupError("the example does not say how its answer is reached")
        return [STORIES.gold(example)]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        written = STORIES.demonstration(example, rng) if self.config.language == BOTH else STORIES.gold(example)
        return self.tell_turns(example, [written])


def pick_language(example: Example) -> str:
    """One of the languages, by the problem alone."""
    return list(LANGUAGES)[digest_example(example)[1] % len(LANGUAGES)]


def write_problem(data: Mapping[str, Any], language: str) -> Example:
    """The problem of ``data`` (who has how many of which item, the changes with the verb of each) in a language."""
    words = LANGUAGES[language]
    story = [f"{data['who']} {words.has} {data['start']} {words.items[data['item']]}"]
    for change, verb in zip(data["changes"], data["verbs"], strict=True):
        story.append(f"{(words.losses if change < 0 else words.gains)[verb]} {abs(change)}")
    prompt = f"{', '.join(story)}. {words.ask}"
    return Example([Message("user", prompt)], str(data["start"] + sum(data["changes"])), {**data, "language": language})
