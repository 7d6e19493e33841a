"""RLAnything: the card's numbers, which rows are trained with what, and how tasks change."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.turn_scripts import script_nodes
from trainers.contract.arrays import unpack_array
from trainers.maths.credit import z_score_by_key
from trainers.methods.living_tasks import EASIER, HARDER, LivingTask, accepts_version
from trainers.methods.worlds.rlanything import ADVANTAGE, STEPS, Config, RLAnything, reward_votes, standardise_steps, standardise_values
from trainers.worlds.room_moves import choose_move
from trainers.worlds.rooms import JUDGE, Rooms

TASK = {"name": "rooms", "options": {"judged": True}}
VALUES = st.lists(st.lists(st.floats(-2, 2).map(lambda value: round(value, 2)), max_size=4), min_size=1, max_size=5)


def write_best(node):
    return f"<do>{choose_move(node.episode.example.data, node.state)}</do>"


def prepared(session, **config):
    method = RLAnything(Config(probe=4, **config))
    method.prepare(session.run)
    tasks = method.data(session.examples[:: session.group_size], session.run)
    session.examples = [task for task in tasks for _ in range(session.group_size)]
    return method


def test_the_worked_example_of_the_card():
    assert standardise_values(reward_votes([1, 1, -1], 1 + 1 / 3)) == pytest.approx([0.7071, 0.7071, -1.4142], abs=1e-4)
    assert standardise_values(reward_votes([1, -1, 0], 4 / 3)) == pytest.approx([1.3887, -0.4629, -0.9258], abs=1e-4)
    assert standardise_steps([[4 / 3], [-2 / 3]]) == [[1], [-1]]
    assert accepts_version(HARDER, 0.9, 0.6, 0.2, 0.8)
    assert not accepts_version(HARDER, 0.9, 0.1, 0.2, 0.8)
    assert not accepts_version(EASIER, 0.1, 0.9, 0.2, 0.8)
    assert accepts_version(EASIER, 0.1, 0.8, 0.2, 0.8)
    assert not accepts_version(EASIER, 0.0, 0.0, 0.2, 0.8)


@given(VALUES)
def test_a_step_is_compared_with_steps_of_its_number(values):
    made = standardise_steps(values)
    assert [len(own) for own in made] == [len(own) for own in values]
    for step in range(max(map(len, values))):
        own = [row[step] for row in made if step < len(row)]
        if len(own) > 1:
            assert sum(own) == pytest.approx(0, abs=1e-6)
        else:
            assert own == [row[step] for row in values if step < len(row)]


@given(st.lists(st.sampled_from([1.0, -1.0]), min_size=2, max_size=8))
def test_without_votes_all_steps_have_the_z_score_of_the_outcome(outcomes):
    import torch

    made = standardise_steps([[outcome, outcome] for outcome in outcomes])
    expected = z_score_by_key(torch.tensor(outcomes, dtype=torch.float64), ["a"] * len(outcomes), 0.0, ddof=0).tolist()
    for own, one in zip(made, expected, strict=True):
        assert own == pytest.approx([one, one], abs=1e-6)


def test_a_group_of_both_kinds_teaches_policy_and_judge(make_session, monkeypatch):
    count = [0]

    def write(node):
        if node.seat == JUDGE:
            count[0] += 1
            return f"<think>left</think>{'+-+'[count[0] % 3]}"
        return write_best(node) if node.episode.member % 2 else "<do>open</do>"

    script_nodes(monkeypatch, write)
    session = make_session(Rooms({"judged": True}), max_tokens=600)
    method = prepared(session)
    episodes = method.rollout(session)
    for episode in episodes:
        (leaf,) = episode.leaves()
        assert len(episode.notes[STEPS]) == len(episode.turns(leaf))
    votes = [leaf for episode in episodes for leaf in episode.side_leaves() if leaf.by == "policy"]
    assert votes
    assert all(vote.seat == JUDGE and vote.trained for vote in votes)
    assert sum(vote.notes[ADVANTAGE] for vote in votes) == pytest.approx(0, abs=1e-6)
    kept = {row.leaf for episode in episodes for row in session.compile(episode)[1]}
    assert kept == set(votes)
    right = [session.is_right(episode.leaves()[0]) for episode in episodes[:4]]
    assert right == [False, True, False, True]


def test_equal_votes_and_equal_outcomes_teach_nothing(make_session, monkeypatch):
    script_nodes(monkeypatch, lambda node: "<think>left</think>+" if node.seat == JUDGE else write_best(node))
    session = make_session(Rooms({"judged": True}), max_tokens=600)
    method = prepared(session)
    episodes = method.rollout(session)
    assert all("all or none" in episode.notes["filtered"] for episode in episodes)
    assert not any(session.compile(episode)[1] for episode in episodes)
    assert {task.goal for task in method.tasks} == {HARDER}
    assert any(task.trial is not None for task in method.tasks)


def test_a_version_that_is_no_better_goes_and_the_old_one_comes_back():
    world = Rooms()
    example = world.lay_out({"rooms": 4, "at": 2, "key": 2, "door": 2})
    task = LivingTask(list(example.prompt), "out", dict(example.data))
    harder = world.lay_out({**example.data, "door": 4})
    task.goal, task.before, task.trial = HARDER, 0.9, harder
    assert task.version is harder
    assert not task.judge_trial(0.95, 0.2, 0.8, 10)
    assert (task.version.data, task.trial) == (example.data, None)
    task.trial = harder
    assert task.judge_trial(0.5, 0.2, 0.8, 10)
    assert task.prompt == harder.prompt
    assert [kept for *_, kept in task.history] == [False, True]


def test_a_version_that_two_groups_have_played_is_judged_once(make_session):
    session = make_session(Rooms({"judged": True}))
    method = prepared(session)
    task = method.tasks[0]
    task.goal, task.before, task.trial = HARDER, 0.9, session.run.task.lay_out({**task.data, "rooms": 6, "door": 6})
    played = task.version
    assert not method.advance_task(task, played, 0.0, session)
    assert not method.advance_task(task, played, 0.5, session)
    assert len(task.history) == 1
    assert task.trial is None


def test_what_tasks_have_become_is_in_the_checkpoint():
    world = Rooms()
    run = SimpleNamespace(task=world)
    examples = [world.lay_out({"rooms": 4, "at": at, "key": 1, "door": 3}) for at in (1, 2)]
    first, second = RLAnything(), RLAnything()
    for method in (first, second):
        method.prepare(run)
        method.data(examples, run)
    first.tasks[0].take(world.lay_out({"rooms": 5, "at": 5, "key": 1, "door": 3}))
    first.tasks[1].trial = world.lay_out({"rooms": 4, "at": 3, "key": 1, "door": 3})
    second.restore(first.state())
    assert second.state() == first.state()
    assert second.tasks[0].prompt[0].content.startswith("You are in room 5 of 5")


@pytest.mark.training
def test_two_real_steps(two_steps, monkeypatch):
    count = [0]

    def write(node):
        if node.seat == JUDGE:
            count[0] += 1
            return f"<think>left</think>{'+-+'[count[0] % 3]}"
        return write_best(node) if node.episode.member % 2 else "<do>open</do>"

    script_nodes(monkeypatch, write)
    small = {"policy": {"kind": "tiny", "cold_start": False}, "training__max_completion_length": 136, "training__prompts": 4}
    trained = two_steps("rlanything", {"probe": 4}, base="dapo", task=TASK, **small)
    for step in trained.steps:
        assert step["rollouts/rows"] > 1
        assert step["rlanything/silent_groups"] == 0
    assert all(unpack_array(rollout.token_advantages).any() for rollout in trained.rollouts)
