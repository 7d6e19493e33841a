"""Facts that are the same in every question, which a policy can therefore have in its weights, beside facts that are drawn for a question alone."""

import random
from collections.abc import Iterable

from trainers.worlds.facts import PEOPLE, Fact, Size, draw_facts

KNOWN = "known"  # in Example.data: whether all that the answer needs is among the facts that are the same everywhere


def list_common_people(size: Size, share: float) -> tuple[str, ...]:
    """The people whose facts are the same everywhere: two at least, so that their relations can stay among them."""
    return PEOPLE[: max(2, round(share * size.people))]


def draw_mixed_facts(rng: random.Random, size: Size, share: float) -> list[Fact]:
    """What ``draw_facts`` draws, with the facts of ``share`` of the people, which come first, the same for every ``rng``.

    Relations of these people lead to one of them, so that a question about one needs nothing else.
    """
    people = list_common_people(size, share)
    common = draw_facts(random.Random(f"common facts/{size}/{len(people)}"), Size(len(people), size.relations, size.attributes))
    return [*common, *(fact for fact in draw_facts(rng, size) if fact.subject not in people)]


def is_common(needed: Iterable[Fact], size: Size, share: float) -> bool:
    people = list_common_people(size, share)
    return all(fact.subject in people for fact in needed)
