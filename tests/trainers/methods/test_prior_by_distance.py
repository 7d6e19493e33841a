"""Prior by distance: distances and the exponent, what the search makes of it, both ends, and two real rounds."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.move_trees import every_move, try_every_move  # noqa: F401
from tests.trainers.methods.test_dsp_plus import engine, session_of  # noqa: F401
from trainers.methods.worlds import prior_by_distance
from trainers.methods.worlds.prior_by_distance import Config, PriorByDistance, compute_nearest_distances, compute_spread, compute_trust
from trainers.rollouts.search import search_trees
from trainers.worlds.rewrites import Rewrites

WORLD = Rewrites()
KNOWN = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])


def test_the_worked_example():
    assert compute_nearest_distances(torch.tensor([[0.6, 0.8], [-1.0, 0.0]]), KNOWN).tolist() == pytest.approx([0.2, 1.0])
    assert compute_spread(KNOWN) == 1.0
    assert compute_spread(KNOWN[:1]) == 1.0
    assert compute_spread(KNOWN[:1].repeat(3, 1)) == 1e-6
    trust = compute_trust(torch.tensor([0.0, 0.5, 1.0]), 0.5, 1.0, 0.25)
    assert trust.tolist() == pytest.approx([1 / (1 + math.exp(-4)), 0.5, 1 / (1 + math.exp(4))])


@given(st.lists(st.floats(0, 2), min_size=2, max_size=6), st.floats(1e-6, 2), st.floats(0, 5), st.floats(0.01, 5))
def test_trust_falls_with_distance_and_is_a_share(distances, spread, threshold, temperature):
    trust = compute_trust(torch.tensor(sorted(distances)), spread, threshold, temperature)
    assert ((trust >= 0) & (trust <= 1)).all()
    assert (trust.diff() <= 0).all()


def test_a_training_prompt_is_nearer_than_any_other():
    states = torch.nn.functional.normalize(torch.randn(20, 8, generator=torch.Generator().manual_seed(0)), dim=1)
    assert compute_nearest_distances(states[:10], states[:10]).abs().max() < 1e-6
    assert compute_nearest_distances(states[10:], states[:10]).min() > 1e-3


def solve(engine, monkeypatch, trust, **config):  # noqa: F811
    """Problems whose policy holds the last rule, mostly a wrong one, for likely; positions are worth nothing before the end."""

    def sample_known_steps(engine, nodes, count):
        made = try_every_move(engine, nodes)
        for steps in made:
            for step, prior in zip(steps, (0.02, 0.02, 0.96), strict=True):
                step.notes["prior"] = prior
        return made

    monkeypatch.setattr(prior_by_distance, "sample_steps", sample_known_steps)
    session, trees = session_of(engine, WORLD.examples("train", 6, 0, "medium")), []
    session.engine, session.prompts = engine, [example.prompt for example in session.examples]
    session.play = lambda nodes: nodes
    session.success = lambda nodes, count: [float(bool(node.finish) and node.state["reached"]) for node in nodes]
    session.search = lambda *args: trees.extend(search_trees(*args)) or trees
    method = PriorByDistance(Config(nodes=200, **config))
    method.run = engine.run
    monkeypatch.setattr(method, "measure_trust", lambda prompts: torch.tensor(trust))
    method.rollout(session)
    return trees, method.collect()


def priors_of(tree):
    return {round(step.notes["prior"], 4) for step in tree.positions}


def test_the_prior_is_raised_to_the_power_of_the_trust(engine, monkeypatch):  # noqa: F811
    trust = [1.0, 0.0, 0.5, 1.0, 0.0, 0.5]
    trees, logged = solve(engine, monkeypatch, trust)
    assert [min(priors_of(tree)) for tree in trees] == pytest.approx([0.02, 1.0, 0.02**0.5] * 2, abs=1e-4)
    assert logged["exponent"] == 0.5
    assert logged["expanded_near"] == pytest.approx(sum(tree.expanded for tree in trees if tree not in trees[1::3]) / 4)
    assert logged["expanded_far"] == pytest.approx(sum(tree.expanded for tree in trees[1::3]) / 2)


@pytest.mark.parametrize(("blend", "least"), [("prior", 0.02), ("none", 1.0)])
def test_both_ends_leave_the_distance_out(engine, monkeypatch, blend, least):  # noqa: F811
    trees, logged = solve(engine, monkeypatch, [0.9, 0.1] * 3, blend=blend)
    assert {min(priors_of(tree)) for tree in trees} == {least}
    assert logged["exponent"] == pytest.approx(0.5)


@pytest.mark.training
def test_two_real_rounds(two_steps, every_move):  # noqa: F811
    settings = {"training__max_completion_length": 64, "training__prompts": 8, "task": {"name": "rewrites", "difficulty": "easy"}}
    trained = two_steps("prior-by-distance", {"nodes": 20}, trainer="procedure", policy=every_move["policy"], **settings)
    for step in trained.steps:
        assert step["prior-by-distance/distance"] == pytest.approx(0, abs=1e-3)  # the prompts of a round are training prompts
        assert step["prior-by-distance/exponent"] > 0.95
        assert "prior-by-distance/expanded_far" not in step
        assert step["prior-by-distance/right_near"] == step["procedure/accuracy"] > 0
