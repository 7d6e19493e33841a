"""A question over a graph whose facts stand in the prompt: those the answer needs, each once more the other way round, and some beside the point.

``Leo friend Mia.`` and ``Mia befriended Leo.`` say the same, so that a fact which is left out can be inferred from its inverse. What is kept of the
needed facts, and the prompts that are told with fewer of them, is what SIE (arXiv 2509.23330) varies.
"""

import random
from typing import Any

from trainers.contract.events import Message
from trainers.tasks.base import Example

INVERSE = {"friend": "befriended", "boss": "leads", "city": "houses", "job": "employs"}  # edge or feature -> how its inverse is told


def describe_context(nodes: dict[str, dict[str, Any]], needed: list[list[str]], distractors: int, rng: random.Random) -> dict[str, Any]:
    """``support``: the needed facts in their order; ``inverse``: each of them the other way round; ``beside``: other facts, some of them inverted."""
    known = [tuple(argument.split()) for _, argument in needed]
    others = [(who, relation) for who in nodes for relation in INVERSE if (who, relation) not in known]
    rng.shuffle(others)
    support = [tell_fact(nodes, who, relation) for who, relation in known]
    inverse = [tell_inverse(nodes, who, relation) for who, relation in known]
    beside = [rng.choice((tell_fact, tell_inverse))(nodes, who, relation) for who, relation in others[:distractors]]
    return {"support": support, "inverse": inverse, "beside": beside}


def find_value(nodes: dict[str, dict[str, Any]], who: str, relation: str) -> str:
    value = nodes[who][relation]
    return str(value[0] if isinstance(value, list) else value)


def tell_fact(nodes: dict[str, dict[str, Any]], who: str, relation: str) -> str:
    return f"{who} {relation} {find_value(nodes, who, relation)}."


def tell_inverse(nodes: dict[str, dict[str, Any]], who: str, relation: str) -> str:
    return f"{find_value(nodes, who, relation)} {INVERSE[relation]} {who}."


def keep_support(example: Example, share: float, rng: random.Random) -> Example:
    """The same question with ``share`` of its needed facts in the prompt: a whole number of them, which has ``share`` as its mean.

    Raises LookupError for an example whose facts are not in the prompt.
    """
    if "support" not in example.data:
        raise LookupError("the example does not say which facts its answer needs")
    count = len(example.data["support"])
    kept = int(share * count + rng.random())
    missing = sorted(rng.sample(range(count), count - kept))
    told = [fact for number, fact in enumerate(example.data["support"]) if number not in missing]
    told += [*example.data["inverse"], *example.data["beside"]]
    rng.shuffle(told)
    question = example.data["question"]
    return Example([Message("user", f"{question} {' '.join(told)}")], example.reference, {**example.data, "missing": missing})


def write_chain(example: Example) -> str:
    """The facts that lead to the answer, as the prompt has them."""
    data = example.data
    told = [data["inverse"][number] if number in data["missing"] else fact for number, fact in enumerate(data["support"])]
    return f"<think>{' '.join(told)}</think>"


def write_careless_chain(example: Example) -> str:
    """The facts that lead to the answer, as if all of them were in the prompt."""
    return f"<think>{' '.join(example.data['support'])}</think>"
