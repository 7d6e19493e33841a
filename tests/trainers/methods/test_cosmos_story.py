"""COS(M+O)S: the card's numbers, which siblings are a pair, and that steps are valued by the reference and the world's rules."""

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from trl.experimental.orpo import ORPOTrainer

from tests.trainers.methods.reading_scripts import script_reading
from trainers.methods.worlds.cosmos_story import Config, explore_stories, make_row, measure_curiosity, pair_siblings
from trainers.worlds.stories import Stories

VALUES = st.lists(st.floats(-2, 1), max_size=6)
STEPS = ("<step>Mia sings</step>", "<step>{who} laughs</step>", "<step>{who} flies</step>", "well")


def test_the_worked_example():
    assert measure_curiosity(4.0, 3.0, 1.0) == pytest.approx(0.6065, abs=1e-4)
    logps = torch.tensor([0.4]).log(), torch.tensor([0.2]).log()
    trainer = SimpleNamespace(beta=0.1, accelerator=SimpleNamespace(device="cpu"))
    odds, *_ = ORPOTrainer.odds_ratio_loss(trainer, *logps)
    assert -logps[0].item() - odds.item() == pytest.approx(0.9481, abs=1e-4)
    assert pair_siblings([0.1, 0.9, -0.4], 0.2) == (1, 2)


@given(st.floats(0, 10), st.floats(0, 10), st.floats(0.1, 5))
def test_curiosity_is_highest_at_the_middle_and_the_same_on_both_sides(surprisal, best, width):
    made = measure_curiosity(surprisal, best, width)
    assert 0 <= made <= 1
    assert measure_curiosity(best, best, width) == 1
    assert measure_curiosity(2 * best - surprisal, best, width) == pytest.approx(made)


@given(VALUES, st.floats(0, 1))
def test_a_pair_is_of_the_best_and_the_worst_where_they_differ(values, delta):
    found = pair_siblings(values, delta)
    spread = max(values, default=0) - min(values, default=0)
    assert (found is not None) == (spread > delta)
    if found is not None:
        assert (values[found[0]], values[found[1]]) == (max(values), min(values))


@pytest.fixture
def session(make_session, monkeypatch):
    """Of every four siblings two tell what can happen, the third is no sentence and the last no step."""

    def write(place, asked):
        who = asked.partition("story. ")[2].partition(" ")[0]
        return STEPS[place % 4].format(who=who).replace("Mia", who)

    script_reading(monkeypatch, write)
    return make_session(Stories({"forbidden": 0}), max_tokens=600)


def test_a_story_goes_on_with_the_best_step_and_steps_are_valued_in_their_state(session):
    config = Config(siblings=4, depth=3, surprisal=0.0, width=20.0)  # surprisal hardly counts
    states = explore_stories(session, session, config)
    assert len(states) >= 2 * len(session.examples)
    for siblings in states:
        assert [option.is_incoherent for option in siblings] == [False, False, True, True]
        assert len({id(option.above) for option in siblings}) == 1
        for option in siblings:
            logprobs = session.likelihood([option.above], [option.turn.ids])[0]
            assert option.surprisal == pytest.approx(-sum(logprobs) / len(logprobs), abs=1e-5)
            assert option.value == pytest.approx(math.exp(-(option.surprisal**2) / 800) - 0.5 * option.is_incoherent, abs=1e-5)
    roots = {id(episode) for episode in {option.above.episode for siblings in states for option in siblings}}
    assert len(roots) == len(session.examples)
    later = [siblings[0].above for siblings in states if siblings[0].above.by == "world"]
    assert later
    assert all(node.text.startswith("<information>and?") for node in later)  # never after an incoherent step


def test_a_row_holds_the_story_so_far_in_its_prompt(session):
    states = explore_stories(session, session, Config(siblings=4, depth=2, surprisal=0.0, width=20.0))
    siblings = next(one for one in states if one[0].above.by == "world")
    row = make_row(session.run, siblings[0], siblings[2])
    prompt, rest = siblings[0].above.episode.context_ids(siblings[0].above)
    assert session.run.tokenizer.encode(row["prompt"], add_special_tokens=False) == [*prompt, *rest]
    assert row["prompt"].endswith("<information>and?</information>")
    assert row["chosen"].endswith("sings</step>")
    assert row["rejected"].endswith("flies</step>")


def test_the_middle_of_the_surprisal_decides_between_steps_that_make_sense(session):
    plain = explore_stories(session, session, Config(siblings=4, depth=1, surprisal=0.0, width=20.0))
    low, high = sorted(option.surprisal for option in plain[0][:2])
    for wanted in (low, high):
        states = explore_stories(session, session, Config(siblings=4, depth=1, surprisal=wanted, width=max(0.01, (high - low) / 2)))
        best = max(states[0], key=lambda option: option.value)
        assert best.surprisal == pytest.approx(wanted, abs=1e-4)


@pytest.mark.training
def test_two_real_steps(two_steps, monkeypatch, written_episodes):
    def write(place, asked):
        who = asked.partition("story. ")[2].partition(" ")[0]
        return f"<step>{who} {'sings' if place % 2 else 'flies'}</step>"

    script_reading(monkeypatch, write)
    options = {key: value for key, value in written_episodes.items() if key != "training__prompts"}
    more = {"training__sampled_prompts": 16, "training__max_length": 240, "task__name": "stories"}
    trained = two_steps("cosmos-story", {"prompts": 8, "siblings": 2, "depth": 2, "width": 20.0}, trainer="orpo", **options, **more)
    first = trained.steps[0]
    assert first["cosmos-story/incoherent/chosen"] == 0
    assert first["cosmos-story/incoherent/rejected"] == 1
    assert first["cosmos-story/pairs"] == 1
    assert all(step["grad_norm"] > 0 for step in trained.steps)
