"""ReMemR1: recall of gold words, step rewards, and advantages that are compared at the same step."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.reading_scripts import OPTIONS, READING, read_to_the_end, script_reading
from trainers.contract.arrays import unpack_array
from trainers.methods.folding import fold_answer
from trainers.methods.worlds.rememr1 import (
    STEPS,
    ReMemR1,
    compute_step_share,
    find_prompts,
    find_turns,
    measure_recall,
    mix_advantages,
    reward_memory,
    reward_recall,
    reward_step,
)
from trainers.worlds.reader import END, Reader

GOLDS = ["paris", "1889 tower"]
STEP_LISTS = st.lists(st.tuples(st.integers(0, 3), st.floats(0, 2), st.floats(-1, 1)), min_size=1, max_size=12)


def test_the_worked_example():
    assert measure_recall("paris", GOLDS) == 0.5
    assert measure_recall("paris tower", GOLDS) == 0.75
    assert reward_memory("paris", "paris tower", GOLDS) == 0.25
    assert reward_memory("paris tower", "tower", GOLDS) == -0.5
    assert reward_recall("a memory of paris.", "tower paris", GOLDS) == 0.25
    assert reward_recall("paris 1889 tower", "", GOLDS) == 0
    outcomes = torch.tensor([0.5, -0.5, -0.5, 0.5])
    made = mix_advantages(outcomes, torch.tensor([1.5, 1.0, 0.5, 1.0]), [0] * 4, 0.8)
    assert made.tolist() == pytest.approx([0.5, -0.4, -0.5, 0.4])


@given(STEP_LISTS, st.floats(0, 1))
def test_steps_are_compared_with_those_at_the_same_place(rows, alpha):
    keys, steps, outcomes = [key for key, _, _ in rows], torch.tensor([own for _, own, _ in rows]), torch.tensor([out for _, _, out in rows])
    made = mix_advantages(outcomes, steps, keys, alpha)
    for key in set(keys):
        places = [place for place, other in enumerate(keys) if other == key]
        assert (made - alpha * outcomes)[places].sum().abs() < 1e-4
    assert torch.equal(mix_advantages(outcomes, steps, keys, 1.0), outcomes)
    assert 0 <= compute_step_share(outcomes, made, alpha) <= 1 + 1e-6


@given(st.text("ab .", max_size=20), st.text("ab .", max_size=20), st.lists(st.text("ab", max_size=3), max_size=3))
def test_recall_is_a_share_and_more_text_never_has_less(text, more, golds):
    assert 0 <= measure_recall(text, golds) <= 1
    assert measure_recall(f"{text} {more}", golds) >= measure_recall(text, golds)
    assert reward_recall(text, more, golds) >= 0


def test_what_each_turn_of_an_episode_earns(make_session):
    """Keeps what is asked, lets it go, looks it up, and answers."""
    session = make_session(Reader(OPTIONS), max_tokens=600)
    world, example = session.run.task, session.examples[0]
    gold = example.reference
    turns = [f"<memory>a {gold}</memory>", "<memory>b</memory>", "<recall>a</recall>", f"<answer>{gold}</answer>"]
    node, prompts = session.begin([0])[0].root, []
    for text in turns:
        prompts.append(node)
        after = session.force(node, text, whole=not text.endswith(world.stop))
        node = after if after.finish else fold_answer(session, world, after)
    seen = [measure_recall(prompt.text, [gold]) for prompt in prompts]
    rewards = [reward_step(prompt, turn, [gold]) for prompt, turn in zip(find_prompts(node), find_turns(node), strict=True)]
    assert rewards == [2.0, 0.0, 1.0 + (seen[2] == 0), 1.0]
    assert "Recalled: a " in prompts[3].text


def test_broken_and_empty_turns_have_nothing_for_the_form(make_session):
    session = make_session(Reader(OPTIONS), max_tokens=600)
    for text, reward in (("<memory></memory>", 0.0), ("well", 0.0), ("<answer>no</answer>", 1.0), ("<recall>x</recall>", 1.0)):
        leaf = session.force(session.begin([0])[0].root, text, whole=not text.endswith(session.run.task.stop))
        assert reward_step(find_prompts(leaf)[0], find_turns(leaf)[0], ["nowhere"]) == reward
    assert reward_step(session.begin([0])[0].root, None, ["nowhere"]) == 0


def test_every_turn_is_a_context_with_its_reward(make_session, monkeypatch):
    script_reading(
        monkeypatch, lambda place, asked: "<recall>city</recall>" if END in asked and "Recalled" not in asked else read_to_the_end(place, asked)
    )
    session, method = make_session(Reader(OPTIONS), max_tokens=600), ReMemR1()
    for episode in method.rollout(session):
        first, further = session.compile(episode)
        rows = [first.row, *further]
        assert [row.place for row in rows] == list(range(5))
        assert len(first.notes[STEPS]) == 5
        assert first.notes[STEPS][-1] == 1
    logged = method.collect()
    assert (logged["recalls"], logged["found"], logged["steps"], logged["right"]) == (1, 1, 5, 0)


@pytest.mark.training
@pytest.mark.parametrize("alpha", [0.8, 1.0])
def test_two_real_steps(two_steps, monkeypatch, alpha):
    """Of every two members one writes an empty memory first: with alpha 1 nothing tells them apart."""

    def write(place, asked):
        return "<memory></memory>" if "Part 1" in asked and place % 2 else read_to_the_end(0, asked)

    script_reading(monkeypatch, write)
    trained = two_steps("rememr1", {"alpha": alpha}, **READING)
    first = {id(rollout): rollout.nodes[1].notes["step_reward"] for rollout in trained.rollouts}
    assert all(rollout.nodes[1].by == "policy" for rollout in trained.rollouts)
    for rollout in trained.rollouts:
        values = unpack_array(rollout.token_advantages)
        same = [first[id(other)] for other in trained.rollouts if (other.step, other.group) == (rollout.step, rollout.group)]
        wanted = (1 - alpha) * (first[id(rollout)] - sum(same) / len(same))
        assert values.tolist() == pytest.approx([wanted] * rollout.length, abs=1e-3)
        assert (values[0] > 0) == (alpha < 1 and first[id(rollout)] > 0)
    assert all(step["rollouts/rows"] == 4 for step in trained.steps)
