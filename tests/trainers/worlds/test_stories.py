"""The world ``stories``: what can happen, what is forbidden, and what readers like without saying so."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, State
from trainers.worlds.criteria import GENRES, compare_rubrics, draw_pair, parse_criterion, prefers_first, rate_story
from trainers.worlds.plots import ImpossibleEventError, apply_event, find_events, is_reached, list_events, parse_sentence, write_sentence
from trainers.worlds.stories import Stories

PLOT = {"thing": "lamp", "at": {"Mia": "mill", "Leo": "cave"}, "holder": "Leo", "place": ""}
DATA = {"genre": "merry", "plot": PLOT, "goal": ["has", "Mia"], "forbidden": "goes", "liked": ["sings"], "steps": 4}
EXAMPLE = Example([Message("user", "Tell a merry story.")], "has Mia", DATA)
AND = "<information>and?</information>"


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        (f"<step>Mia sings</step>{AND}<step>Mia walks to the cave</step>{AND}<step>Leo gives the lamp to Mia</step>", (1, 1, 1, 1)),
        (f"<step>Leo walks to the mill</step>{AND}<step>Leo hands the lamp to Mia</step>", (1, 0, 1, 1)),
        (  # Leo is elsewhere
            "<step>Leo gives the lamp to Mia</step><information>how?</information>"
            f"<step>Mia walks to the cave</step>{AND}<step>Leo gives the lamp to Mia</step>",
            (0, 0, 2 / 3, 1),
        ),
        (  # the forbidden word does not happen either
            f"<step>Mia goes to the cave</step><information>no!</information><step>Mia sings</step>{AND}"
            f"<step>Mia walks to the cave</step>{AND}<step>Leo gives the lamp to Mia</step>",
            (0, 1, 0.75, 1),
        ),
        (f"<step>Mia sings</step>{AND}<step>Mia flies to the cave</step>", (0, 1, 1, 0)),
        (f"<step>Mia goes to the cave</step>{AND}<step>Leo gives the lamp to Mia</step>", (0, 0, 0, 1)),  # a reply that the reader never gave
        (f"<step>Mia sings</step>{AND}" * 3 + "<step>Mia sings</step>", (0, 1, 1, 1)),
    ],
)
def test_what_a_story_earns(text: str, scores: tuple[float, ...]) -> None:
    rewards = Stories().rewards.values()
    played = text.count(AND) != 1 or "goes" not in text  # a text that cannot be played whole earns nothing at all
    assert tuple(reward.function(text, EXAMPLE) for reward in rewards) == (pytest.approx(scores) if played else (0, 0, 0, 0))


@given(st.integers(0, 10_000))
def test_events_that_are_listed_can_happen_and_are_read_as_they_are_written(seed: int) -> None:
    rng, plot = random.Random(seed), PLOT
    for _ in range(5):
        event = rng.choice(list(list_events(plot, ("mill", "cave", "inn"))))
        for forbidden in ("", "goes", "takes", "gives"):
            assert parse_sentence(plot, write_sentence(plot, event, forbidden)) == event
        plot = apply_event(plot, event)
        events = find_events(plot, ["has", "Mia"], 4)
        assert events is not None
        after = plot
        for one in events:
            assert not is_reached(after, ["has", "Mia"])
            after = apply_event(after, one)
        assert is_reached(after, ["has", "Mia"])


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (("Mia", "go", "mill"), "already"),
        (("Mia", "take", "lamp"), "Leo has"),
        (("Mia", "give", "Leo"), "does not have"),
        (("Leo", "give", "Mia"), "not where"),
    ],
)
def test_what_cannot_happen_says_why(event: tuple[str, str, str], why: str) -> None:
    with pytest.raises(ImpossibleEventError, match=why):
        apply_event(PLOT, event)


def test_the_levels_differ_in_what_has_to_happen() -> None:
    world = Stories()
    goals = {level: {example.data["goal"][0] for example in world.examples("train", 40, 0, level)} for level in world.difficulties}
    assert goals == {"easy": {"has"}, "medium": {"has"}, "hard": {"is at"}}
    held = {level: {bool(example.data["plot"]["holder"]) for example in world.examples("train", 40, 0, level)} for level in world.difficulties}
    assert held == {"easy": {False}, "medium": {False, True}, "hard": {False}}
    for example in world.examples("train", 40, 0, "hard"):
        assert len(world.way(example, world.begin(example))) <= example.data["steps"] - world.config.spare


def test_without_forbidden_words_and_criteria_nothing_is_asked_for() -> None:
    world = Stories({"forbidden": 0, "criteria": 0})
    for example in world.examples("train", 20, 0, "medium"):
        assert "Never" not in example.prompt[0].content
        assert world.rewards["reader"].function(world.gold(example), example) is None
        assert world.rewards["correct"].function(world.gold(example), example) == 1


def play_rubric(world: Stories, example: Example, criteria: list[str]) -> State:
    state = world.begin(example)
    for turn, criterion in enumerate(criteria):
        state = world.step(example, state, POLICY, f"<step>{criterion}</step>", world.draw_noise(example, turn)).state
    return state


def test_a_rubric_is_judged_by_the_pair_and_by_the_readers_weights() -> None:
    world = Stories({"write": "rubric"})
    data = {"genre": "merry", "pair": [["Mia sings"], ["Mia laughs", "Leo cries"]], "steps": 2}
    example = Example([Message("user", "Write 2 criteria for a merry story.")], "first", data)
    gold = play_rubric(world, example, ["sings 3", "laughs 1"])
    assert world.outcome(example, gold)[POLICY] == {"correct": 1, "reader": pytest.approx(1), "possible": 1, "format": 1}
    other = play_rubric(world, example, ["cries 2", "sings 1"])
    assert world.outcome(example, other)[POLICY] == {"correct": 0, "reader": pytest.approx(3 / (5 * 10) ** 0.5), "possible": 1, "format": 1}
    twice = play_rubric(world, example, ["sings 3", "sings 3"])
    assert world.outcome(example, twice)[POLICY]["possible"] == 0.5
    assert world.way(example, world.begin(example)) == ["<step>sings 3</step>", "<step>laughs 1</step>"]
    with pytest.raises(LookupError):
        world.way(example, play_rubric(world, example, ["cries 2"]))


def test_rubrics_are_demonstrated_and_the_better_ones_agree_with_readers_more_often() -> None:
    world, rng = Stories({"write": "rubric"}), random.Random(0)
    agreed = {True: [0, 0], False: [0, 0]}
    for example in world.examples("train", 300, 0, "easy"):
        said = [one.text.removeprefix("<step>").removesuffix("</step>") for one in world.turns(example, rng) if one.seat]
        state = play_rubric(world, example, said)
        assert state["over"]
        best = state["rubric"] == GENRES[example.data["genre"]]
        agreed[best][0] += prefers_first(state["rubric"], example.data["pair"])
        agreed[best][1] += 1
    assert agreed[True][0] == agreed[True][1] > 30
    assert agreed[False][0] < 0.9 * agreed[False][1]


@given(st.integers(0, 10_000), st.sampled_from(list(GENRES)))
def test_of_a_pair_the_first_is_what_readers_prefer(seed: int, genre: str) -> None:
    first, second = draw_pair(random.Random(seed), genre, ("Mia", "Leo"))
    assert rate_story(GENRES[genre], first) > rate_story(GENRES[genre], second)


def test_weights_of_a_rubric() -> None:
    assert rate_story({"sings": 2, "cries": 1}, ["Mia sings"]) == pytest.approx(2 / 3)
    assert rate_story({}, ["Mia sings"]) == compare_rubrics({}, {"sings": 1}) == 0
    assert parse_criterion("sings 3", {}) == {"sings": 3}
    assert [parse_criterion(text, {"cries": 1}) for text in ("sings 0", "sings 33", "sings", "cries 2", "runs 1", "sings ³")] == [None] * 6
