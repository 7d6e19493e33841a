"""Questions of weak clues: each filter of the funnel, what accepted ones need, and rows that the lab's worlds can score."""

import json
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.contract.dataset_tools.application import apply_tool, load_tool
from trainers.contract.dataset_tools.clue_questions import (
    NO_FACTS,
    STAGES,
    Clue,
    Config,
    answer_as_solver,
    draft_question,
    find_candidates,
    measure_agreement,
    read_entities,
    search_entities,
)
from trainers.worlds.graph import Graph
from trainers.worlds.search import Search

FEW, UNIQUE, SEVERAL, ONE_SEARCH, BAND = STAGES


def people(**told):
    """``Zoe="Rome cook"``: city and job of each."""
    return {who: dict(zip(("city", "job"), words.split(), strict=True)) for who, words in told.items()}


PAIR = people(Ana="Rome nurse", Ben="Oslo cook", Zoe="Rome cook")  # only together Zoe's clues are hers


def outcome_of(nodes, seed=0, **config):
    row = {"prompt": "Old?", "reference": "old", "data": {"nodes": nodes, "needed": [["node", "Ana"]]}}
    (outcome,) = apply_tool(load_tool("bmgq", {"clues": 2, "solvers": 0, **config}), [row], "prompt", seed)
    return outcome


def test_clues_that_fit_several_and_together_one_make_a_question():
    (made,) = outcome_of(PAIR, drafts=50).made
    assert made.row["prompt"] in ("Who has city Rome; job cook?", "Who has job cook; city Rome?")
    assert made.row["reference"] == "Zoe"
    assert sorted(made.row["data"]["clues"]) == [["city", "Rome", 2], ["job", "cook", 2]]
    assert made.row["data"].keys() == {"nodes", "clues"}, "what belonged to the old question is gone"
    assert made.note.endswith("clues that fit 2, 2")


@pytest.mark.parametrize(
    ("nodes", "config", "dropped"),
    [
        (people(Ana="Rome cook", Ben="Oslo nurse"), {}, UNIQUE),
        (people(Ana="Rome cook", Ben="Rome cook"), {}, SEVERAL),
        (PAIR, {"fewest": 3, "drafts": 50}, UNIQUE),
        (PAIR, {"clues": 3}, FEW),
        (people(Ana="Rome cook", Ben="Rome nurse", Zoe="Oslo cook"), {"drafts": 50}, ONE_SEARCH),  # Ana comes first in the alphabet
        (PAIR, {"top": 2, "drafts": 50}, ONE_SEARCH),
        (PAIR, {"solvers": 3, "known": 1.0, "drafts": 50}, BAND),  # who knows all is right
        ({}, {}, NO_FACTS),
    ],
)
def test_each_filter_drops_what_it_is_for(nodes, config, dropped):
    outcome = outcome_of(nodes, **config)
    assert outcome.dropped == dropped
    assert not outcome.made


ENTITIES = st.lists(st.tuples(*(st.sampled_from(words) for words in (("Rome", "Oslo"), ("cook", "nurse"), ("cat", "dog")))), min_size=2, max_size=8)


@given(ENTITIES, st.integers(2, 3), st.integers(0, 20))
def test_an_accepted_question_has_one_answer_and_no_clue_alone_finds_it(rows, clues, seed):
    nodes = {f"P{number}": dict(zip(("city", "job", "pet"), row, strict=True)) for number, row in enumerate(rows)}
    entities = read_entities({"nodes": nodes})
    draft = draft_question(entities, Config(clues=clues, solvers=0), random.Random(seed))
    if draft.stage is not None:
        return
    assert find_candidates(entities, draft.clues) == {draft.target}
    assert len({clue.relation for clue in draft.clues}) == clues
    for clue, size in zip(draft.clues, draft.candidates, strict=True):
        assert len(find_candidates(entities, [clue])) == size >= 2, "an oracle needs two look-ups at least"
        assert draft.target not in search_entities(entities, clue, 1)


def test_a_solver_who_knows_all_is_right_and_one_who_knows_nothing_guesses():
    entities, clues = read_entities({"nodes": PAIR}), [Clue("city", "Rome"), Clue("job", "cook")]
    assert answer_as_solver(entities, clues, 1.0, random.Random(0)) == "Zoe"
    assert {answer_as_solver(entities, clues, 0.0, random.Random(seed)) for seed in range(30)} == set(PAIR)
    assert measure_agreement(entities, "Zoe", clues, 4, 1.0, random.Random(0)) == 1.0


@pytest.mark.parametrize(("world", "options"), [(Graph, {"people": 8}), (Search, {})])
def test_rows_of_the_worlds_become_questions_that_the_worlds_score(world, options):
    task = world(options)
    rows = [
        {"prompt": example.prompt[0].content, "reference": example.reference, "data": example.data}
        for example in task.examples("train", 60, 0, "hard")
    ]
    outcomes = list(apply_tool(load_tool("bmgq", {"clues": 2}), json.loads(json.dumps(rows)), "prompt", 0))
    made = [outcome.made[0].row for outcome in outcomes if outcome.made]
    assert made
    assert set(Counter(outcome.dropped for outcome in outcomes)) <= {"", *STAGES}
    example = next(iter(task.examples("train", 1, 0, "hard")))
    question = type(example)(example.prompt, made[0]["reference"], made[0]["data"])
    scores = {name: reward.function(f"<answer>{made[0]['reference']}</answer>", question) for name, reward in task.rewards.items()}
    assert scores["correct"] == 1
    if world is Search:
        facts = [made[0]["data"]["facts"][number] for number in made[0]["data"]["evidence"]]
        assert {fact[0] for fact in facts} == {made[0]["reference"]}
        assert len(facts) == 2


@pytest.mark.parametrize("data", [None, "x", {}, {"nodes": 3}, {"nodes": {"Ana": 3}}, {"facts": [["a", "b"]]}, {"facts": [["a", "b", "c"]] * 5001}])
def test_data_without_facts_is_none(data):
    assert read_entities(data) == {}
