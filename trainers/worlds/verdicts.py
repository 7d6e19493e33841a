"""Judge pairs: which of two worked answers to a sum is right? After "On the shelf life of fine-tuned LLM judges" (arXiv 2509.23542).

``7+3-2?`` with ``A: 7+3=10 10-2=8`` and ``B: 7+3=11 11-2=9`` wants ``<think>7+3=10 10-2=8</think><answer>A</answer>``. One answer is right and one
is wrong, both as one generator would write them. Rules stand for generators: a weak one stops a step early or misses the result by far, a strong one
slips by 1 on the way, or takes a change with the wrong sign, and goes on from there. With the option ``generator`` all that is trained on is of one
of them, or of the weak one first and then of the strong one, while held-out pairs are of both.

Every held-out pair stands there in both orders, the second right after the first: a judge is right about a pair if it is right in both (consistent
accuracy). Questions are a fixed list for each difficulty. Training knows half of it; held-out pairs are about all, so that what a judge does on
questions that it has seen can be told from what it does on others.
"""

import random
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from trainers.contract.events import Message
from trainers.contract.judge_shelf_life import CONTINUAL, SEEN, STRONG, UNSEEN, WEAK
from trainers.contract.pair_judgements import FIRST, PLACES, SECOND, PairVerdict, measure_judge, write_judge_question, write_verdict
from trainers.tasks import mini_gsm
from trainers.tasks.base import Example, Split, digest_example
from trainers.worlds.base import POLICY, Said, State, make_rewards, parse_answer
from trainers.worlds.tool_use import CORRECT, FORMAT, ToolWorld

QUESTIONS = 300  # of a difficulty that are trained on; as many others are held out
TIERS = (WEAK, STRONG)
SIZES = {**mini_gsm.SIZES, "hard": mini_gsm.Sizes(steps=(4, 4), start=(10, 60), change=(1, 19))}
FAR = (3, 9)  # by how much a weak generator misses a result
CAREFUL = 0.4  # of the cold start's demonstrations


class VerdictsConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    generator: Literal["both", "weak", "strong", "continual"] = Field(
        "both",
        title="Whose answers",
        description="Of all pairs for training; held-out pairs are of both generators. continual: first the weak one's, then as many of the strong "
        "one's. With any but both, demonstrations are right.",
    )


class Verdicts(ToolWorld):
    name = "verdicts"
    title = "Which of two answers"
    summary = "Judge which of two worked answers to a sum is right, written by a weak or by a strong generator."
    Config = VerdictsConfig
    config: VerdictsConfig
    difficulties = {
        "easy": "2 or 3 changes of 1 to 5, starting from 3 to 15.",
        "medium": "3 or 4 changes of 1 to 9, starting from 5 to 30.",
        "hard": "4 changes of 1 to 19, starting from 10 to 60.",
    }
    demonstrations = "Of mixed quality by design: 40 % work the sum out and name the right answer, 60 % name one by chance."
    max_turns = 1
    max_turn_tokens = 72
    episode_tokens = 72

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        columns = {tier: (f"The same, of pairs of the {tier} generator alone.", 0.0) for tier in TIERS}
        self.rewards = make_rewards(self, {"correct": CORRECT, **columns, "format": FORMAT})
        self.questions = QUESTIONS

    @property
    def start_options(self) -> dict[str, Any]:
        """Those of the cold start: the first judge has seen both generators, whichever is trained on afterwards."""
        return {name: value for name, value in self.options.items() if name != "generator"}

    def examples(self, split: Split, count: int, seed: int, difficulty: str) -> list[Example]:
        """Pairs are drawn with the right answer first and put in their order afterwards; held-out ones are the same whatever is trained."""
        if split == "heldout":
            every = type(self)(self.start_options)
            every.questions = 2 * QUESTIONS
            pairs = super(Verdicts, every).examples(split, (count + 1) // 2, seed, difficulty)
            return [order_pair(pair, place) for pair in pairs for place in PLACES][:count]
        if self.config.generator == CONTINUAL:
            parts = ((WEAK, (count + 1) // 2), (STRONG, count // 2))
            return [one for tier, some in parts for one in type(self)({"generator": tier}, self.seed).examples(split, some, seed, difficulty)]
        drawn = super().examples(split, count, seed, difficulty)
        return [order_pair(pair, PLACES[digest_example(pair)[1] % 2]) for pair in drawn]

    def example(self, rng: random.Random, difficulty: str) -> Example:
        number = rng.randrange(self.questions)
        start, changes = list_questions(difficulty)[number]
        tier = rng.choice(TIERS) if self.config.generator not in TIERS else self.config.generator
        right = work_out(start, changes)
        wrong = (make_gross_mistake if tier == WEAK else make_subtle_mistake)(start, changes, rng)
        known = SEEN if number < QUESTIONS else UNSEEN
        data = {"start": start, "changes": list(changes), "tier": tier, "question": known, "right": " ".join(right), "wrong": " ".join(wrong)}
        return order_pair(Example([], FIRST, data), FIRST)

    def begin_calls(self, example: Example) -> State:
        return {}

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        scores = self.score_answer(example, state)
        return {POLICY: {**scores, **{tier: scores["correct"] if tier == example.data.get("tier") else None for tier in TIERS}}}

    def way(self, example: Example, state: State) -> list[str]:
        self.check_open(state)
        if "right" not in example.data:
            raise LookupError("the example does not say how its answer is reached")
        return [write_verdict(example.reference, example.data["right"])]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        is_careful = self.config.generator != "both" or rng.random() < CAREFUL
        return self.tell_turns(example, self.way(example, self.begin(example)) if is_careful else [write_verdict(rng.choice(PLACES))])

    def measure_together(self, examples: Sequence[Example], answers: Sequence[str]) -> dict[str, float | None]:
        """Consistent accuracy of all pairs, by generator and by whether the question is trained on; the share of pairs with the same place named
        twice, and of verdicts for the first place. None where there is no such pair.
        """
        verdicts = collect_verdicts(examples, answers)
        found: dict[str, float | None] = {"consistent": share_consistent([verdict for _, verdict in verdicts])}
        for column, values in (("tier", TIERS), ("question", (SEEN, UNSEEN))):
            for value in values:
                found[f"consistent_{value}"] = share_consistent([verdict for data, verdict in verdicts if data[column] == value])
        figures = measure_judge([verdict for _, verdict in verdicts])
        bias = {"biased": figures.biased, "says_first": figures.says_first} if figures is not None else {"biased": None, "says_first": None}
        return {**found, **bias}


def collect_verdicts(examples: Sequence[Example], answers: Sequence[str]) -> list[tuple[Mapping[str, Any], PairVerdict]]:
    """What is known of each pair that is there in both orders, and what was said of it."""
    said: dict[tuple[str, str], dict[str, str | None]] = {}
    known: dict[tuple[str, str], Mapping[str, Any]] = {}
    for example, answer in zip(examples, answers, strict=True):
        if "right" in example.data:
            key = (example.data["right"], example.data["wrong"])
            place = parse_answer(answer)
            said.setdefault(key, {})[example.reference] = place if place in PLACES else None
            known[key] = example.data
    return [(known[key], PairVerdict(one[FIRST], one[SECOND])) for key, one in said.items() if len(one) == len(PLACES)]


def share_consistent(verdicts: Sequence[PairVerdict]) -> float | None:
    figures = measure_judge(verdicts)
    return None if figures is None else figures.consistent


def order_pair(pair: Example, place: str) -> Example:
    """The pair with its right answer in this place."""
    right, wrong = pair.data["right"], pair.data["wrong"]
    question = f"{pair.data['start']}{''.join(f'{change:+d}' for change in pair.data['changes'])}?"
    text = write_judge_question(question, *((right, wrong) if place == FIRST else (wrong, right)))
    return Example([Message("user", text)], place, pair.data)


@cache
def list_questions(difficulty: str) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Start and changes of each question, all different and the same everywhere; the first half is trained on."""
    rng, sizes = random.Random(f"verdicts/{difficulty}"), SIZES[difficulty]
    found = dict[tuple[int, tuple[int, ...]], None]()
    while len(found) < 2 * QUESTIONS:
        start = total = rng.randint(*sizes.start)
        changes = list[int]()
        for _ in range(rng.randint(*sizes.steps)):
            size = rng.randint(*sizes.change)
            changes.append(-size if rng.random() < 0.5 and total > size else size)
            total += changes[-1]
        found[start, tuple(changes)] = None
    return tuple(found)


def work_out(start: int, changes: Sequence[int], slips: Mapping[int, int] = {}) -> list[str]:
    """One equation for each change; ``slips``: place of an equation -> by how much its result is off, which the next one goes on from."""
    total, lines = start, list[str]()
    for place, change in enumerate(changes):
        result = total + change + slips.get(place, 0)
        lines.append(f"{total}{change:+d}={result}")
        total = result
    return lines


def make_gross_mistake(start: int, changes: Sequence[int], rng: random.Random) -> list[str]:
    """A step too few, or a result that is far off in the end."""
    if rng.random() < 0.5:
        return work_out(start, changes)[:-1]
    far, right = rng.randint(*FAR), start + sum(changes)
    return work_out(start, changes, {len(changes) - 1: -far if rng.random() < 0.5 and right > far else far})


def make_subtle_mistake(start: int, changes: Sequence[int], rng: random.Random) -> list[str]:
    """One result off by 1, or one change with the wrong sign, and right work from there. No total is below 0."""
    places = list(range(len(changes)))
    rng.shuffle(places)
    if rng.random() < 0.5:
        for place in places:
            turned = [-change if one == place else change for one, change in enumerate(changes)]
            if is_never_negative(start, turned):
                return work_out(start, turned)
    slip = rng.choice((-1, 1))
    return work_out(start, changes, {places[0]: slip if is_never_negative(start, changes, {places[0]: slip}) else 1})


def is_never_negative(start: int, changes: Sequence[int], slips: Mapping[int, int] = {}) -> bool:
    total = start
    for place, change in enumerate(changes):
        total += change + slips.get(place, 0)
        if total < 0:
            return False
    return True
