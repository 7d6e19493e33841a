"""The world ``graph`` with its facts in the prompt: what is left out, and what still says it."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.worlds.test_contract import CONTRACT
from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.graph import Graph
from trainers.worlds.graph_context import keep_support, write_chain

OPTIONS = {"in_context": True, "support": 0.5}
WORLD = Graph(OPTIONS)
EXAMPLES = [example for difficulty in WORLD.difficulties for example in WORLD.examples("train", 6, 0, difficulty)]


@given(st.sampled_from(EXAMPLES), st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.integers(0, 99))
def test_what_is_left_out_is_told_the_other_way_round(example: Example, share: float, seed: int) -> None:
    told = keep_support(example, share, random.Random(seed))
    prompt, data = told.prompt[0].content, told.data
    assert prompt.startswith(example.data["question"])
    assert all((fact in prompt) is (number not in data["missing"]) for number, fact in enumerate(data["support"]))
    assert all(fact in prompt for fact in (*data["inverse"], *data["beside"]))
    assert all(fact + "." in prompt for fact in write_chain(told).removeprefix("<think>").removesuffix("</think>").rstrip(".").split(". "))
    assert told.reference == example.reference
    count = len(data["support"])
    assert abs(count - len(data["missing"]) - share * count) < 1


def test_the_share_is_met_on_average() -> None:
    rng = random.Random(0)
    kept = [1 - len(keep_support(EXAMPLES[0], 0.75, rng).data["missing"]) / len(EXAMPLES[0].data["support"]) for _ in range(400)]
    assert sum(kept) / len(kept) == pytest.approx(0.75, abs=0.05)


def test_an_example_without_facts_is_refused() -> None:
    with pytest.raises(LookupError, match="which facts"):
        keep_support(Example([Message("user", "q")], "a"), 0.5, random.Random(0))


def test_it_keeps_the_contract_and_changes_nothing_of_the_plain_world() -> None:
    for check in CONTRACT:
        check(Graph(OPTIONS))
    assert Graph(OPTIONS).tools == ()
    assert Graph({"support": 0.5}).examples("train", 5, 0, "easy") == Graph().examples("train", 5, 0, "easy")
