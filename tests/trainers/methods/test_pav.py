"""PAV: the prover's values and advantages, and where they go."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.turn_scripts import WORLD, script_turns
from trainers.contract.arrays import unpack_array
from trainers.methods.worlds.pav import ADVANTAGES, PAV, Config, compute_best_of, compute_prover_advantages

VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=6)


def make_method(session, **config):
    method = PAV(Config(**config))
    method.prepare(session.run)
    return method


def test_the_worked_example():
    assert [compute_best_of(value, 4) for value in (0.4, 0.6, 0.55, 0.9)] == pytest.approx([0.8704, 0.9744, 0.9590, 0.9999], abs=1e-4)
    assert compute_prover_advantages([0.4, 0.6, 0.55], 0.9, 4) == pytest.approx([0.1040, -0.0154, 0.0409], abs=1e-4)
    assert compute_prover_advantages([0.4, 0.6, 0.55], 0.9, 1) == pytest.approx([0.2, -0.05, 0.35])
    assert 0.55 + compute_prover_advantages([0.4, 0.6, 0.55], 0.9, 4)[1] == pytest.approx(0.5346, abs=1e-4)  # the effective reward of step 2


@given(VALUES, st.booleans(), st.integers(1, 64))
def test_advantages_add_up_and_keep_their_sign(values, right, count):
    made = compute_prover_advantages(values, float(right), count)
    assert sum(made) == pytest.approx(right - compute_best_of(values[0], count))
    for before, after, one in zip(values, [*values[1:], float(right)], made, strict=True):
        assert one * (after - before) >= -1e-12


@given(st.floats(0.2, 1), st.floats(0.2, 1))
def test_a_prover_that_always_succeeds_tells_nothing(before, after):
    assert abs(compute_prover_advantages([before, after], after, 1024)[0]) < 1e-9


def test_continuations_are_looked_at_and_given_up(make_session):
    session = make_session()
    torch.manual_seed(4)
    made = make_method(session, samples=2).rollout(session)
    for one in made:
        assert one.row.episode.leaves() == [one.row.leaf]
        assert len(one.notes[ADVANTAGES]) == sum(turn.role == "assistant" for turn in one.turns)
        assert one.mask == [int(turn.role == "assistant") for turn in one.turns for _ in range(turn.start, turn.end)]
    gone = [node for one in made for node in one.row.episode.nodes if node.fate == "abandoned"]
    assert {node.why for node in gone if node.why} == {"value"}
    assert len({one.row.episode.root.notes["value"] for one in made[:4]}) == 1  # played once for a group


@pytest.mark.training
def test_two_real_steps(two_steps, monkeypatch):
    script_turns(monkeypatch, lambda number, text: "<answer>none</answer>" if text else "<search>Eva's boss</search>")
    trained = two_steps("pav", {"alpha": 2.0, "samples": 2}, base="grpo", **{**WORLD, "training__prompts": 2})
    for rollout in trained.rollouts:
        values = [node.notes["value"] for node in rollout.nodes if "value" in node.notes]
        found = unpack_array(rollout.token_advantages)
        first, world, last = rollout.turns
        gains = compute_prover_advantages(values, 0.0, 4)
        assert found[first.start] == pytest.approx(2 * gains[0], abs=1e-3)
        assert not found[world.start : world.end].any()
        assert found[last.start] == pytest.approx(2 * gains[1], abs=1e-3)
        assert any(node.fate == "abandoned" for node in rollout.nodes) or rollout.sample
