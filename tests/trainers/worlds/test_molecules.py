"""The world ``molecules``: the grammar, the two scores, and that they are at odds."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.tasks.base import Example
from trainers.worlds.molecules import ATOMS, Molecules, draw_molecule, list_pairs, measure_common, read_atoms, space_target

EXAMPLE = Example([], "NOCOS", {"target": "NOOS", "forbidden": ["OO", "SN"], "most": 6})


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("NOCOS", (1, 1, 1, 1)),
        ("NO(C)OS", (1, 1, 1, 1)),
        ("NOOS", (0, 1, 0.5, 1)),
        ("NO=OS", (0, 1, 0.5, 1)),  # a bond keeps nothing apart
        ("CCC", (0, 0, 1, 1)),
        ("NOS", (0, 0.75, 1, 1)),
        ("NOCOSCC", (0, 0, 0, 0)),  # too many atoms
        ("NOC(OS", (0, 0, 0, 0)),
        ("", (0, 0, 0, 0)),
    ],
)
def test_what_a_string_earns(text, scores):
    found = tuple(reward.function(f"<answer>{text}</answer>", EXAMPLE) for reward in Molecules().rewards.values())
    assert found == scores
    assert Molecules().step(EXAMPLE, {"answer": None, "errors": 0}, "policy", f"<answer>{text}</answer>", None).reward == scores[0]


@pytest.mark.parametrize("text", ["(C)", "=C", "C=", "C()", "C((N))", "C)N(", "C(=N)", "C==N", "X", "C N", "C(N", "Cn"])
def test_what_is_no_string_of_the_grammar(text):
    assert read_atoms(text) == ""


@pytest.mark.parametrize(("text", "atoms"), [("C", "C"), ("C(N=O)S", "CNOS"), ("C(N(O))(S)=C", "CNOSC")])
def test_what_is_one(text, atoms):
    assert read_atoms(text) == atoms


@given(st.randoms(use_true_random=False), st.integers(2, 12))
def test_random_strings_are_of_the_grammar(rng, most):
    assert 2 <= len(read_atoms(draw_molecule(rng, most))) <= most


@given(st.text(ATOMS, min_size=1, max_size=6), st.lists(st.text("NOS", min_size=2, max_size=2), max_size=4))
def test_a_spaced_target_binds_whole_and_is_safe(target, forbidden):
    spaced = space_target(target, forbidden)
    assert measure_common(target, spaced) == len(target)
    assert not set(list_pairs(spaced)) & set(forbidden)


@given(st.text(ATOMS, max_size=8), st.text(ATOMS, max_size=8))
def test_what_is_common_is_the_same_from_both_sides(one, other):
    assert measure_common(one, other) == measure_common(other, one) <= min(len(one), len(other))
    assert measure_common(one, one) == len(one)


@pytest.mark.parametrize("difficulty", ["easy", "medium", "hard"])
def test_the_target_as_it_stands_is_mostly_unsafe(difficulty):
    examples = Molecules().examples("train", 100, 0, difficulty)
    unsafe = [bool(set(list_pairs(one.data["target"])) & set(one.data["forbidden"])) for one in examples]
    assert sum(unsafe) > 50
    assert random.Random(0).choice(examples).data["most"] <= 10
