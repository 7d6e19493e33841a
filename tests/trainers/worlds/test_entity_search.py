"""The world ``entity_search``: which questions are accepted, what blurring keeps, and what the searches find."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.worlds.entity_search import EntitySearch, read_clues
from trainers.worlds.question_building import Clue, NoQuestion, blur_clue, blur_question, draw_question, find_matches, is_acceptable

THINGS = {  # of the method card: three entities of three properties
    "A": {"colour": "red", "form": "round", "size": "big"},
    "B": {"colour": "red", "form": "round", "size": "small"},
    "C": {"colour": "red", "form": "square", "size": "big"},
}
RED, ROUND, BIG = Clue("colour", "red"), Clue("form", "round"), Clue("size", "big")


def test_a_question_is_accepted_only_if_its_clues_fit_one_entity_together_and_more_alone() -> None:
    assert find_matches(THINGS, [RED, ROUND]) == ["A", "B"]
    assert not is_acceptable(THINGS, [RED, ROUND])
    assert is_acceptable(THINGS, [RED, ROUND, BIG])
    assert not is_acceptable(THINGS, [Clue("form", "square"), RED])  # the first gives it away


@given(st.integers(0, 300), st.sampled_from([(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]))
def test_questions_have_one_answer_and_descriptions_that_fit_several(seed: int, kind: tuple[int, int]) -> None:
    entities, root, clues = draw_question(*kind, random.Random(seed))
    assert find_matches(entities, clues) == [root]
    assert (len(clues), sum(clue.attribute != "" for clue in clues)) == kind
    for clue in clues:
        assert len(find_matches(entities, [clue])) > 1
        if clue.attribute:
            assert sum(known[clue.attribute] == clue.described for known in entities.values()) > 1
            assert clue.value not in clue.words


@given(st.integers(0, 100))
def test_blurring_keeps_the_answer_and_never_blurs_a_clue_twice(seed: int) -> None:
    rng = random.Random(seed)
    entities, root, clues = draw_question(3, 0, rng)
    blurred = blur_question(entities, clues, rng)
    if blurred is not None:
        assert find_matches(entities, blurred) == [root]
        assert sum(one != other for one, other in zip(clues, blurred, strict=True)) == 1
    for clue in blurred or ():
        assert not clue.attribute or blur_clue(entities, clue, rng) is None


def test_there_is_no_question_with_more_blurred_clues_than_names() -> None:
    with pytest.raises(NoQuestion):
        draw_question(2, 2, random.Random(0))


def test_a_search_finds_the_sentences_of_a_clue_and_what_is_needed_is_noted() -> None:
    world = EntitySearch()
    example = world.examples("train", 1, 0, "easy")[0]
    relation, value = read_clues(example)[0].relation, read_clues(example)[0].value
    answer = world.respond(example, f"<search>{relation} is {value}</search>")
    assert f"{example.reference}'s {relation} is {value}." in str(answer)
    evidence = world.rewards["evidence"].function
    assert evidence(f"<answer>{example.reference}</answer>", example) == 0
    assert evidence(f"<search>{relation} is {value}</search>{answer}<answer>x</answer>", example) == 0.5


@pytest.mark.parametrize(("options", "difficulty", "searches"), [({}, "easy", 2), ({}, "medium", 3), ({}, "hard", 4), ({"blurred": 1.0}, "easy", 3)])
def test_blurred_questions_take_more_searches(options: dict[str, float], difficulty: str, searches: int) -> None:
    needed = [len(example.data["evidence"]) for example in EntitySearch(options).examples("train", 20, 0, difficulty)]
    assert max(needed) == searches
    assert sum(needed) / len(needed) > searches - 0.5
