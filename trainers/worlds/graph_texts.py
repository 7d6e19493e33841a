"""Questions over a graph of people as a seat writes them: read back, followed along the edges, and checked against the facts that were at hand."""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainers.worlds.graph_context import INVERSE, find_value

Nodes = dict[str, dict[str, Any]]
Fact = tuple[str, str]  # whose, and which edge or feature

EDGES = ("friend", "boss")
FEATURES = ("city", "job")
MOST_CHARACTERS = 120
QUESTION = re.compile(rf"What is the ({'|'.join(FEATURES)}) of ((?:the (?:{'|'.join(EDGES)}) of ){{0,3}})([A-Z][a-z]{{1,9}})\?")


@dataclass(frozen=True)
class Question:
    """The feature ``asked`` of whom the edges of ``chain`` lead to from ``person``."""

    person: str
    chain: tuple[str, ...]
    asked: str

    def __str__(self) -> str:
        return f"What is the {self.asked} of {''.join(f'the {edge} of ' for edge in reversed(self.chain))}{self.person}?"


def parse_question(text: str) -> Question | None:
    """None for any text that asks for no feature by at most three edges."""
    found = QUESTION.fullmatch(text) if len(text) <= MOST_CHARACTERS and text.isascii() else None
    if found is None:
        return None
    edges = found[2].replace("the ", "").replace(" of", "").split()
    return Question(found[3], tuple(reversed(edges)), found[1])


def list_needed(nodes: Nodes, question: Question) -> list[Fact]:
    """The facts that lead to the answer, in order; the last one holds it. Raises LookupError for somebody who is not in the graph."""
    at, needed = question.person, list[Fact]()
    if at not in nodes:
        raise LookupError(f"{at} is not in the graph")
    for edge in question.chain:
        needed.append((at, edge))
        at = find_value(nodes, at, edge)
    return [*needed, (at, question.asked)]


def follow_question(nodes: Nodes, question: Question) -> str:
    """The answer. Raises LookupError as ``list_needed`` does."""
    return find_value(nodes, *list_needed(nodes, question)[-1])


def list_calls(needed: Sequence[Fact]) -> list[list[str]]:
    """The functions that show these facts."""
    return [["neighbours" if relation in EDGES else "feature", f"{who} {relation}"] for who, relation in needed]


def find_chain(nodes: Nodes, who: str, hops: int, rng: random.Random) -> list[Fact]:
    """Edges that lead to ``who``, the first one farthest away; at most ``hops``, fewer where nobody leads on."""
    chain = list[Fact]()
    for _ in range(hops):
        before = [(other, edge) for other in nodes for edge in EDGES if other != who and find_value(nodes, other, edge) == who]
        if not before:
            break
        chain.insert(0, rng.choice(before))
        who = chain[0][0]
    return chain


def build_question(chain: Sequence[Fact], last: Fact) -> Question:
    """The question that these facts answer: edges, then the feature."""
    return Question(chain[0][0] if chain else last[0], tuple(edge for _, edge in chain), last[1])


def draw_documents(nodes: Nodes, hops: int, noise: int, rng: random.Random) -> tuple[list[Fact], Question]:
    """Facts in random order, ``noise`` of them beside the point, and the question with the most hops (at most ``hops``) that they were chosen for."""
    target = (rng.choice(list(nodes)), rng.choice(FEATURES))
    chain = find_chain(nodes, target[0], hops, rng)
    needed = [*chain, target]
    others = [(who, relation) for who in nodes for relation in INVERSE if (who, relation) not in needed]
    shown = [*dict.fromkeys(needed), *rng.sample(others, min(noise, len(others)))]
    rng.shuffle(shown)
    return shown, build_question(chain, target)


def draw_question(nodes: Nodes, most: int, rng: random.Random) -> Question:
    """Any question about anybody."""
    chain = tuple(rng.choice(EDGES) for _ in range(rng.randint(0, most)))
    return Question(rng.choice(list(nodes)), chain, rng.choice(FEATURES))


def shorten_question(nodes: Nodes, question: Question, hops: int) -> Question:
    """The same answer asked for with no more than ``hops`` edges."""
    needed = list_needed(nodes, question)
    return build_question(needed[max(0, len(question.chain) - hops) : -1], needed[-1])


def find_fault(nodes: Nodes, question: Question | None, shown: Sequence[Sequence[str]], answer: str) -> str:
    """Why a question is not asked, in words: empty for one that these facts answer with ``answer``."""
    if question is None:
        return "no question"
    try:
        needed = list_needed(nodes, question)
    except LookupError:
        return "nobody of this name"
    if find_value(nodes, *needed[-1]) != answer:
        return "another answer"
    return "" if all([who, relation] in [list(fact) for fact in shown] for who, relation in needed) else "not in the documents"
