"""Questions that ask for an entity by clues, built from the facts around it: a tree whose root is the answer and whose edges are the clues.

A clue names a value (``the city Rome``, ``the friend Leo``). One that names a person can be blurred: ``a friend with the pet cat`` fits several
people. A question is accepted when its clues together fit one entity and no clue alone does. Uniqueness, which systems for the web have to guess, is
exact here. Building by subtrees is InfoAgent's (arXiv 2509.25189), blurring an accepted question WebExplorer's (arXiv 2509.06501).
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainers.worlds.facts import PEOPLE, RELATIONS, Fact

VALUES = {"city": ("Rome", "Oslo", "Lima"), "pet": ("cat", "dog", "fox"), "job": ("cook", "nurse", "pilot")}
PERSONS = PEOPLE[:6]
EDGES = RELATIONS[:2]
TRIES = 2000  # how often facts are drawn anew for a question


class NoQuestion(LookupError):
    """The facts hold no acceptable question of this kind."""


@dataclass(frozen=True)
class Clue:
    """``relation`` leads from the answer to ``value``; blurred, the person it leads to is described by an attribute instead."""

    relation: str
    value: str
    attribute: str = ""
    described: str = ""

    @property
    def words(self) -> str:
        return f"a {self.relation} with the {self.attribute} {self.described}" if self.attribute else f"the {self.relation} {self.value}"

    def as_row(self) -> list[str]:
        return [self.relation, self.value, self.attribute, self.described]


def draw_entities(rng: random.Random) -> dict[str, dict[str, str]]:
    """Everybody's relations and attributes."""
    return {
        who: {
            **{edge: rng.choice([one for one in PERSONS if one != who]) for edge in EDGES},
            **{name: rng.choice(values) for name, values in VALUES.items()},
        }
        for who in PERSONS
    }


def list_facts(entities: dict[str, dict[str, str]]) -> list[Fact]:
    return [Fact(who, relation, value) for who, known in entities.items() for relation, value in known.items()]


def find_matches(entities: dict[str, dict[str, str]], clues: Sequence[Clue]) -> list[str]:
    """The entities that every clue fits."""
    return [who for who, known in entities.items() if all(fits_clue(entities, known, clue) for clue in clues)]


def fits_clue(entities: dict[str, dict[str, str]], known: dict[str, str], clue: Clue) -> bool:
    if clue.attribute:
        return entities[known[clue.relation]][clue.attribute] == clue.described
    return known[clue.relation] == clue.value


def is_acceptable(entities: dict[str, dict[str, str]], clues: Sequence[Clue]) -> bool:
    """Whether all clues together fit exactly one entity and none does alone."""
    return len(find_matches(entities, clues)) == 1 and all(len(find_matches(entities, [clue])) > 1 for clue in clues)


def blur_clue(entities: dict[str, dict[str, str]], clue: Clue, rng: random.Random) -> Clue | None:
    """The clue with a description that fits two people at least in the place of a name; None where there is none, or nothing to blur."""
    if clue.relation not in EDGES or clue.attribute:
        return None
    named = entities[clue.value]
    fitting = [name for name in VALUES if sum(known[name] == named[name] for known in entities.values()) > 1]
    if not fitting:
        return None
    attribute = rng.choice(fitting)
    return replace(clue, attribute=attribute, described=named[attribute])


def blur_question(entities: dict[str, dict[str, str]], clues: Sequence[Clue], rng: random.Random) -> list[Clue] | None:
    """The question with one more clue blurred, if it stays acceptable; None where no clue can be."""
    for place in rng.sample(range(len(clues)), len(clues)):
        if (blurred := blur_clue(entities, clues[place], rng)) is not None:
            made = [*clues[:place], blurred, *clues[place + 1 :]]
            if is_acceptable(entities, made):
                return made
    return None


def build_clues(entities: dict[str, dict[str, str]], count: int, blurs: int, rng: random.Random) -> tuple[str, list[Clue]]:
    """(the answer, ``count`` clues of which ``blurs`` are blurred). Raises NoQuestion."""
    root = rng.choice(PERSONS)
    edges = rng.sample(EDGES, min(count - 1, len(EDGES)))
    relations = [*edges, *rng.sample(list(VALUES), count - len(edges))]
    clues = [Clue(relation, entities[root][relation]) for relation in relations]
    if not is_acceptable(entities, clues):
        raise NoQuestion("the clues fit another entity too, or one of them gives the answer away")
    for _ in range(blurs):
        blurred = blur_question(entities, clues, rng)
        if blurred is None:
            raise NoQuestion("no clue is left that can be blurred")
        clues = blurred
    return root, clues


def draw_question(count: int, blurs: int, rng: random.Random) -> tuple[dict[str, dict[str, str]], str, list[Clue]]:
    """(entities, the answer, the clues); facts are drawn anew until they hold a question. Raises NoQuestion."""
    for _ in range(TRIES):
        entities = draw_entities(rng)
        try:
            return entities, *build_clues(entities, count, blurs, rng)
        except NoQuestion:
            continue
    raise NoQuestion(f"no question of {count} clues with {blurs} of them blurred")


def list_evidence(entities: dict[str, dict[str, str]], root: str, clues: Sequence[Clue]) -> list[Fact]:
    """The facts that the clues stand on, in the order in which they can be searched for."""
    needed = []
    for clue in clues:
        child = entities[root][clue.relation]
        if clue.attribute:
            needed.append(Fact(child, clue.attribute, clue.described))
        needed.append(Fact(root, clue.relation, child))
    return list(dict.fromkeys(needed))


def write_question(clues: Sequence[Clue]) -> str:
    return f"Who has {'; '.join(clue.words for clue in clues)}?"
