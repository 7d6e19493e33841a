"""Questions of several weak clues that identify an entity only together, built from the facts of a row.

After BMGQ (arXiv 2510.24151), as we read its abstract: from a seed entity clues of different relations are collected; a question is kept where each
clue fits at least m entities and all together fit one, where no search for one clue finds that one among its first k, and where M solvers agree on it
neither always nor more often than a band says. What is dropped is counted by the filter that dropped it: the acceptance funnel.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainers.contract.dataset_tools.answers import remove_columns
from trainers.contract.dataset_tools.base import DatasetTool, MadeRow, Row, RowDropped, RowForm, ToolCard
from trainers.contract.dataset_tools.questions import find_user_question, replace_question
from trainers.contract.hyperparameters import Strict, param

Entities = Mapping[str, Mapping[str, frozenset[str]]]  # who -> relation -> values
NO_FACTS = "rows without facts about entities"
STAGES = (  # the filters in order, as the funnel calls what they drop
    "entities with too few relations",
    "questions with a clue that fits too few",
    "questions whose clues fit several",
    "questions that one search answers",
    "questions outside the band of agreement",
)
FEW, UNIQUE, SEVERAL, ONE_SEARCH, BAND = range(len(STAGES))
MOST_FACTS = 5_000


@dataclass(frozen=True)
class Clue:
    relation: str
    value: str

    @property
    def words(self) -> str:
        return f"{self.relation} {self.value}"


@dataclass(frozen=True)
class Draft:
    """``stage``: the filter that drops it; None where it is kept. ``candidates``: how many entities each clue fits."""

    target: str
    clues: tuple[Clue, ...]
    candidates: tuple[int, ...]
    stage: int | None


class Config(Strict):
    clues: int = param(3, "Clues of a question, each of another relation.", ge=2, le=8)
    fewest: int = param(2, "Entities that each clue fits at least (m); 2 suits the lab's graphs.", title="Fewest per clue", ge=2, le=1000)
    top: int = param(1, "A search for one clue must not find the answer among its first so many (k).", title="First hits", ge=1, le=100)
    solvers: int = param(3, "Solvers that are asked (M); 0 leaves this filter out.", ge=0, le=16)
    known: float = param(0.5, "Share of the facts that each solver knows.", title="Known to a solver", ge=0, le=1)
    low: float = param(0.0, "At least this share of the solvers is right.", title="Lowest agreement", ge=0, le=1)
    high: float = param(0.67, "At most this share of the solvers is right.", title="Highest agreement", ge=0, le=1)
    drafts: int = param(10, "Questions that are drafted from each row until one is kept.", title="Drafts per row", ge=1, le=200)


class ClueQuestions(DatasetTool):
    card = ToolCard(
        name="bmgq",
        title="Questions of weak clues",
        summary="Makes questions of several clues that identify the answer only together, from facts that rows carry, such as those of the world "
        "graph; the counts are the acceptance funnel. Train GRPO on them.",
        arxiv="2510.24151",
        system="BMGQ",
        departures=(
            "Relations are those of the row's facts; the paper grows typed evidence with an entailment model.",
            "Clues are relation and value as they stand, not oblique wording.",
            "Solvers are rules that each know a share of the facts; the paper asks models.",
            "A search ranks entities by the words of a clue, alphabetically where they are equal.",
            "Known from the abstract; all numbers are ours.",
        ),
    )
    suffix = "of weak clues"
    forms = {"prompt": "prompt"}
    Config = Config

    def make_rows(self, row: Row, form: RowForm, rng: random.Random) -> list[MadeRow]:
        entities = read_entities(row.get("data"))
        if not entities:
            raise RowDropped(NO_FACTS)
        place, _ = find_user_question(row.get("prompt"))
        furthest = FEW
        for count in range(1, self.config.drafts + 1):
            draft = draft_question(entities, self.config, rng)
            if draft.stage is None:
                return [MadeRow(make_question_row(row, place, draft), describe_draft(draft, count))]
            furthest = max(furthest, draft.stage)
        raise RowDropped(STAGES[furthest])


def draft_question(entities: Entities, config: Config, rng: random.Random) -> Draft:
    """A question about an entity drawn at random, and the first filter that it does not pass."""
    target = rng.choice(sorted(entities))
    relations = sorted(relation for relation, values in entities[target].items() if values)
    if len(relations) < config.clues:
        return Draft(target, (), (), FEW)
    clues = tuple(Clue(relation, rng.choice(sorted(entities[target][relation]))) for relation in rng.sample(relations, config.clues))
    fitting = [find_candidates(entities, [clue]) for clue in clues]
    sizes = tuple(map(len, fitting))
    if min(sizes) < config.fewest:
        return Draft(target, clues, sizes, UNIQUE)
    if find_candidates(entities, clues) != {target}:
        return Draft(target, clues, sizes, SEVERAL)
    if any(target in search_entities(entities, clue, config.top) for clue in clues):
        return Draft(target, clues, sizes, ONE_SEARCH)
    if config.solvers and not config.low <= measure_agreement(entities, target, clues, config.solvers, config.known, rng) <= config.high:
        return Draft(target, clues, sizes, BAND)
    return Draft(target, clues, sizes, None)


def find_candidates(entities: Entities, clues: Sequence[Clue]) -> set[str]:
    """The entities that all clues fit."""
    return {who for who, known in entities.items() if all(clue.value in known.get(clue.relation, ()) for clue in clues)}


def search_entities(entities: Entities, clue: Clue, count: int) -> list[str]:
    """The first entities by how many of the clue's two words their facts have together: both of one fact first, then one of them."""

    def rank(who: str) -> int:
        known = entities[who]
        if clue.value in known.get(clue.relation, ()):
            return 0
        return 1 if any(clue.value in values for values in known.values()) else 2

    return sorted(entities, key=lambda who: (rank(who), who))[:count]


def measure_agreement(entities: Entities, target: str, clues: Sequence[Clue], solvers: int, share: float, rng: random.Random) -> float:
    """Share of the solvers that are right: each knows some facts, and answers with an entity that most of the clues fit as far as it knows."""
    return statistics.fmean(answer_as_solver(entities, clues, share, rng) == target for _ in range(solvers))


def answer_as_solver(entities: Entities, clues: Sequence[Clue], share: float, rng: random.Random) -> str:
    fitting = {
        who: sum(clue.value in known.get(clue.relation, ()) and rng.random() < share for clue in clues) for who, known in sorted(entities.items())
    }
    most = max(fitting.values())
    return rng.choice([who for who, count in fitting.items() if count == most])


def make_question_row(row: Row, place: int, draft: Draft) -> Row:
    """The row with another question; of its data only the facts stay, which the other answer needs too."""
    question = f"Who has {'; '.join(clue.words for clue in draft.clues)}?"
    data = {name: value for name, value in row["data"].items() if name in ("nodes", "facts")}
    if "facts" in data:
        needed = [[draft.target, clue.relation, clue.value] for clue in draft.clues]
        data["evidence"] = [number for number, fact in enumerate(data["facts"]) if fact in needed]
    told = [[clue.relation, clue.value, count] for clue, count in zip(draft.clues, draft.candidates, strict=True)]
    made = remove_columns(row, "completion", "label", "chosen", "rejected")
    return {**made, "prompt": replace_question(row["prompt"], place, question), "reference": draft.target, "data": {**data, "clues": told}}


def describe_draft(draft: Draft, count: int) -> str:
    return f"draft {count}: clues that fit {', '.join(map(str, draft.candidates))}"


def read_entities(data: Any) -> Entities:
    """From ``nodes`` (who → relation → value or values) or ``facts`` (who, relation, value); empty where there are none, or too many."""
    if not isinstance(data, dict):
        return {}
    nodes, facts = data.get("nodes"), data.get("facts")
    triples = list[tuple[str, str, str]]()
    if isinstance(nodes, dict):
        for who, known in nodes.items():
            for relation, values in known.items() if isinstance(known, dict) else ():
                triples += [(str(who), str(relation), str(value)) for value in (values if isinstance(values, list) else [values])]
    elif isinstance(facts, list):
        triples = [(str(fact[0]), str(fact[1]), str(fact[2])) for fact in facts if isinstance(fact, list) and len(fact) == 3]
    if len(triples) > MOST_FACTS:
        return {}
    entities: dict[str, dict[str, set[str]]] = {}
    for who, relation, value in triples:
        entities.setdefault(who, {}).setdefault(relation, set()).add(value)
    return {who: {relation: frozenset(values) for relation, values in known.items()} for who, known in entities.items()}
