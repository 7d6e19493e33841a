"""A small world of people and what is true of them, as sentences, and a search engine over sentences."""

import math
import random
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

PEOPLE = ("Mia", "Leo", "Zoe", "Max", "Ana", "Tom", "Eva", "Sam", "Ida", "Ben", "Kim", "Ned")
RELATIONS = ("friend", "boss", "sister", "coach")
ATTRIBUTES = {
    "city": ("Rome", "Oslo", "Lima", "Cairo", "Delhi", "Paris"),
    "pet": ("cat", "dog", "fox", "owl", "frog", "hen"),
    "food": ("rice", "soup", "fish", "cake", "corn", "plum"),
    "job": ("cook", "nurse", "pilot", "baker", "judge", "clerk"),
}
WORD = re.compile(r"[a-z0-9']+")  # "Ben's" is another word than "Ben": who has a sister is not who is one
SATURATION, LENGTH_SHARE = 1.2, 0.75  # BM25's k1 and b
MOST_QUERY_WORDS = 100


@dataclass(frozen=True)
class Fact:
    subject: str
    relation: str
    value: str

    @property
    def sentence(self) -> str:
        return f"{self.subject}'s {self.relation} is {self.value}."


@dataclass(frozen=True)
class Size:
    """How many of the lists above a world uses."""

    people: int
    relations: int
    attributes: int


class Facts:
    """Facts in the order they were given; a fact's number is its place."""

    def __init__(self, facts: Sequence[Fact]) -> None:
        self.facts = tuple(facts)
        self.engine = index_documents(tuple(fact.sentence for fact in self.facts))

    def values(self, subject: str, relation: str) -> list[str]:
        return [fact.value for fact in self.facts if fact.subject == subject and fact.relation == relation]

    def value(self, subject: str, relation: str) -> str:
        """The only one. Raises LookupError where there is none, or where there are several."""
        found = self.values(subject, relation)
        if len(found) != 1:
            raise LookupError(f"{subject} has {len(found)} of the relation {relation}")
        return found[0]

    def numbers(self, subject: str, relation: str) -> list[int]:
        return [number for number, fact in enumerate(self.facts) if fact.subject == subject and fact.relation == relation]


def draw_facts(rng: random.Random, size: Size) -> list[Fact]:
    """One value of every relation and attribute for everybody, in random order."""
    people = PEOPLE[: size.people]
    facts = [Fact(who, relation, rng.choice([one for one in people if one != who])) for who in people for relation in RELATIONS[: size.relations]]
    facts += [Fact(who, name, rng.choice(ATTRIBUTES[name])) for who in people for name in list(ATTRIBUTES)[: size.attributes]]
    rng.shuffle(facts)
    return facts


def split_words(text: str) -> list[str]:
    return WORD.findall(text.lower())


class Engine:
    """BM25 over documents; equal scores in the order of the documents."""

    def __init__(self, documents: Sequence[str]) -> None:
        self.documents = documents
        self.postings: dict[str, dict[int, int]] = defaultdict(dict)  # word -> document -> how often
        lengths = []
        for number, document in enumerate(documents):
            words = split_words(document)
            lengths.append(len(words))
            for word in words:
                self.postings[word][number] = self.postings[word].get(number, 0) + 1
        mean = sum(lengths) / len(lengths) if lengths else 0.0
        self.norms = [SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * length / mean) if mean else 0.0 for length in lengths]

    def search(self, query: str, count: int) -> list[int]:
        """Numbers of the best documents; only of those that hold a word of the query."""
        scores: dict[int, float] = defaultdict(float)
        for word in dict.fromkeys(split_words(query)[:MOST_QUERY_WORDS]):
            holding = self.postings.get(word, {})
            rarity = math.log(1 + (len(self.documents) - len(holding) + 0.5) / (len(holding) + 0.5))
            for number, times in holding.items():
                scores[number] += rarity * times * (SATURATION + 1) / (times + self.norms[number])
        return sorted(scores, key=lambda number: (-scores[number], number))[:count]


@lru_cache(maxsize=1024)
def index_documents(documents: tuple[str, ...]) -> Engine:
    return Engine(documents)
