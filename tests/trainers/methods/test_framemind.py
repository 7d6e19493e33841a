"""FrameMind: the card's numbers, levels spread over a group, and groups of one level."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.conftest import make_spec
from tests.trainers.methods.batches import rollout_batch
from tests.trainers.methods.reading_scripts import read_to_the_end, script_reading
from trainers.catalog.entries import entries_for
from trainers.contract import stacking
from trainers.contract.spec import SpecError, TaskChoice
from trainers.maths.advantages import compute_trl_advantages
from trainers.methods.worlds.framemind import LEVEL, LEVELS, TURNS, Config, FrameMind, choose_level, reward_views
from trainers.tasks.registry import load_chosen_task
from trainers.worlds.reader import Reader, list_lines

OPTIONS = {"levels": True}
ROWS = st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 9)), min_size=1, max_size=8)


def columns(rows):
    return [torch.tensor([float(row[place]) for row in rows]) for place in range(3)]


def test_the_worked_example():
    right, turns = torch.tensor([1.0, 1.0, 0.0, 1.0]), torch.tensor([2.0, 1.0, 3.0, 5.0])
    rewards = reward_views(right, torch.ones(4), turns, 0.0, 0.5)
    assert rewards.tolist() == [1.5, 1, 0, 1]
    assert compute_trl_advantages(rewards, 4, "group").tolist() == pytest.approx([0.993, 0.199, -1.391, 0.199], abs=1e-3)


@given(ROWS, st.floats(0, 1), st.floats(0, 1))
def test_the_bonus_is_for_right_answers_in_two_or_three_turns_alone(rows, form, bonus):
    right, formed, turns = columns(rows)
    made = reward_views(right, formed, turns, form, bonus) - reward_views(right, formed, turns, form, 0.0)
    assert made.tolist() == pytest.approx([bonus * (is_right and 2 <= count <= 3) for is_right, _, count in rows], abs=1e-6)
    assert reward_views(right, formed, turns, 0.0, 0.0).tolist() == right.tolist()


@given(st.integers(1, 16), st.integers(0, 50))
def test_levels_are_spread_evenly_and_every_group_begins_with_another(members, group):
    counts = Counter(choose_level(member, group) for member in range(members))
    assert max(counts.values()) - min(counts[level] for level in LEVELS) <= 1
    assert {choose_level(0, group + place) for place in range(3)} == set(LEVELS)


@pytest.mark.parametrize("difficulty", ["easy", "hard"])
def test_a_text_at_another_level_is_the_same_text(difficulty):
    world = Reader({**OPTIONS, "numbered": True})
    for example in world.examples("train", 10, 0, difficulty):
        for level in LEVELS:
            cut = world.recut_example(example, level)
            lines = [(line.number, line.topic, line.value) for line in list_lines(cut)]
            assert lines == [(line.number, line.topic, line.value) for line in list_lines(example)]
            assert all(len(chunk) <= level for chunk in cut.data["lines"])
            assert " ".join(cut.data["chunks"]) == " ".join(example.data["chunks"])
            assert [reward.function(world.gold(cut), cut) for reward in world.rewards.values()] == [1, 1, 1, 1]
        assert world.recut_example(example, len(example.data["lines"][0])) == example


def test_members_of_a_group_read_the_same_text_at_different_levels(make_session, monkeypatch):
    script_reading(monkeypatch, read_to_the_end)
    world = Reader(OPTIONS)
    for spread in (True, False):
        session = make_session(world, max_tokens=600)
        method = FrameMind(Config(spread=spread))
        method.run = session.run
        asked = [list(prompt) for prompt in session.prompts]
        episodes = method.rollout(session)
        for row, episode in enumerate(episodes):
            level, base = episode.notes[LEVEL], session.examples[row]
            assert episode.example == world.recut_example(base, level)
            assert session.prompts[row] == episode.example.prompt
            assert episode.notes[TURNS] == len(episode.example.data["chunks"]) + 1
            assert spread or session.prompts[row] == asked[row]
            completion, further = session.compile(episode)
            assert (completion.notes[LEVEL], further, completion.scores["read"]) == (level, [], 1)
        levels = [[episode.notes[LEVEL] for episode in episodes if episode.group == group] for group in (0, 1)]
        assert [len(set(own)) for own in levels] == ([3, 3] if spread else [1, 1])
        assert method.collect()[f"turns_{levels[0][0]}"] >= 2


def test_rewards_of_a_group():
    batch = rollout_batch([1, 1, 0, 0], 4, reward_names=["correct", "format"], notes=[{TURNS: 2}, {TURNS: 5}, {TURNS: 2}, {}])
    batch.rewards = torch.tensor([[1.0, 1], [1, 1], [0, 1], [0, 0]])
    method = FrameMind()
    assert method.rewards(batch, torch.zeros(4)).tolist() == pytest.approx([1.6, 1.1, 0.1, 0.0])
    assert method.collect()["paid_for_turns"] == 0.25


def test_it_needs_texts_at_every_level(tmp_path):
    spec = make_spec(tmp_path, task={"name": "reader"}, methods=[{"name": "framemind"}])
    assert "task.options.levels" in [problem.field for problem in stacking.check_stack(spec, entries_for(spec)).problems]


def test_levels_go_without_late_topics():
    with pytest.raises(SpecError) as refused:
        load_chosen_task(TaskChoice(name="reader", options={"levels": True, "late": 0.5}))
    assert [problem.field for problem in refused.value.problems] == ["task.options.levels"]


@pytest.mark.training
def test_two_real_steps(two_steps, monkeypatch):
    script_reading(monkeypatch, lambda place, asked: read_to_the_end(place, asked, ("<answer>Rome</answer>", "Rome")))
    launch = {"policy": {"kind": "tiny", "cold_start": False}, "training__max_completion_length": 144, "training__prompts": 8}
    trained = two_steps("framemind", base="grpo", task={"name": "reader", "difficulty": "easy", "options": OPTIONS}, **launch)
    for rollout in trained.rollouts:
        wanted = rollout.rewards["correct"] * (1 + 0.5 * (rollout.completion.count("<memory>") in (1, 2))) + 0.1 * rollout.rewards["format"]
        assert rollout.shaped["framemind"] == pytest.approx(wanted)
    groups = {(one.step, one.group): set() for one in trained.rollouts}
    for one in trained.rollouts:
        groups[one.step, one.group].add(one.prompt[-1].content)
    assert all(len(prompts) == 3 for prompts in groups.values())
