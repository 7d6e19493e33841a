"""EvoDPO: the card's numbers, DPO behind a closed gate, and phases of a real run."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainers.methods import pair_files
from trainers.methods.pairs.atlas_evodpo import Config, EvoDPO, answer_divergence, best_candidate, may_promote_candidate, token_divergence


def test_the_worked_examples():
    one, other = torch.tensor([0.7, 0.3]).log(), torch.tensor([0.5, 0.5]).log()
    divergence = token_divergence(torch.stack([one, other])[None], torch.stack([other, other])[None])  # (1, 2)
    assert divergence[0].tolist() == pytest.approx([0.0823, 0.0], abs=1e-4)
    assert answer_divergence(divergence, torch.ones(1, 2)).item() == pytest.approx(0.0411, abs=1e-4)
    assert may_promote_candidate(0.05, 0.0411, 0.01, 0.05)
    assert not may_promote_candidate(0.05, 0.0411, 0.01, 0.03)
    assert not may_promote_candidate(0.005, 0.0, 0.01, 0.05)
    assert best_candidate([0.50, 0.55], [0.02, 0.20], 0.5) == 0


@settings(deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=2, max_size=6), st.floats(-5, 5))
def test_divergence_is_no_less_than_zero_and_zero_from_itself(logits, shift):
    policy = torch.log_softmax(torch.tensor(logits, dtype=torch.double), -1)
    reference = torch.log_softmax(torch.tensor(logits[::-1], dtype=torch.double) + shift, -1)
    assert token_divergence(policy, reference) >= -1e-12
    assert token_divergence(policy, policy) == 0


def test_masked_answers_are_finite():
    assert answer_divergence(torch.ones(2, 3), torch.zeros(2, 3)).tolist() == [0, 0]


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=5), st.floats(-3, 3))
def test_the_choice_ignores_a_shift_of_all_scores_and_the_weight_when_nothing_has_moved(figures, shift):
    scores, divergences = [round(score, 3) for score, _ in figures], [round(far, 3) for _, far in figures]
    worth = [score - 0.5 * far for score, far in zip(scores, divergences, strict=True)]
    chosen = best_candidate(scores, divergences, 0.5)
    assert worth[chosen] == max(worth)
    assert worth[best_candidate([score + shift for score in scores], divergences, 0.5)] == pytest.approx(max(worth))
    assert best_candidate(scores, [0.0] * len(scores), 9.0) == best_candidate(scores, divergences, 0.0)


class Model(torch.nn.Linear):
    def __init__(self, value):
        super().__init__(1, 1, bias=False)
        torch.nn.init.constant_(self.weight, value)


def phases(config, scores, steps=9, resume_at=None):
    """The reference's weight after each step, with a policy whose weight is the step and figures that are given for each weight."""

    class Known(EvoDPO):
        def loaded(self, weights):
            return weights["weight"].item()

        def score(self, gate, model, step):
            return scores.get(model if isinstance(model, float) else model.weight.item(), 0.0)

        def divergence(self, gate, model, reference):
            return abs(model - reference.weight.item())

    method, reference, found = Known(config), Model(0.0), []
    for step in range(1, steps + 1):
        if step == resume_at:
            state, method = method.state(), Known(config)
            method.restore(state)
        method.rows, method.examples = [{}] * 4, [None] * 4
        method.run = type("Run", (), {"rng": lambda self, *key: __import__("random").Random(str(key))})()
        method.reference(step, Model(step - 1.0), reference)
        found.append(reference.weight.item())
    return found


def test_the_reference_moves_at_the_end_of_a_phase_to_the_best_candidate():
    config = Config(phase_steps=4, candidates=2, least_gain=0.5, most_divergence=3, divergence_weight=0.0)
    assert phases(config, {2.0: 3.0, 4.0: 1.0}) == [0, 0, 0, 0, 2, 2, 2, 2, 2]  # the intermediate checkpoint was better
    assert phases(config, {2.0: 0.1, 4.0: 1.0}) == [0] * 9  # the better one is too far away


def test_a_closed_gate_is_dpo_and_no_gate_always_moves():
    assert phases(Config(phase_steps=2, least_gain=1e9), {2.0: 5.0}) == [0] * 9
    assert phases(Config(phase_steps=4, gate=False), {}) == [0, 0, 0, 0, 4, 4, 4, 4, 8]


def test_a_resumed_phase_remembers_its_checkpoints():
    config = Config(phase_steps=4, candidates=2, least_gain=0.5, most_divergence=3, divergence_weight=0.0)
    assert phases(config, {2.0: 3.0}, resume_at=4) == phases(config, {2.0: 3.0})


@pytest.mark.parametrize("least_gain", [-9.0, 9.0], ids=["open", "closed"])
@pytest.mark.training
def test_real_phases(tmp_path, two_steps, least_gain):
    dataset = pair_files.write(tmp_path, pair_files.rows(16))
    config = {"phase_steps": 2, "candidates": 2, "gate_size": 4, "least_gain": least_gain, "most_divergence": 9.0}
    steps = two_steps("atlas-evodpo", config, trainer="dpo", dataset=dataset, training__max_steps=5, training__learning_rate=1e-3).steps
    opened = [0, 0, 1, 0, 1] if least_gain < 0 else [0] * 5
    assert [step["atlas-evodpo/reference_updated"] for step in steps] == opened
    assert [step["atlas-evodpo/phase"] for step in steps] == [0, 0, 1, 1, 2]
    gate = steps[4]
    assert gate["atlas-evodpo/divergence"] > 0
    assert 0 <= gate["atlas-evodpo/score_reference"] <= 1
    assert gate["atlas-evodpo/candidate_divergence/01"] != gate["atlas-evodpo/candidate_divergence/00"]
