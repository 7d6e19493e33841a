"""PNS: the card's rewards, plain right-or-wrong without weights, and pairs whose rejected side is the most plausible wrong answer."""

import json
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import pair_batch, rollout_batch
from trainers.maths.advantages import z_score
from trainers.methods.pairs.pns import PNS, Config, compute_mean_likelihood, compute_plausibility, reasoning_quality, reverse_reward
from trainers.tasks import registry
from trainers.texts.chains import corrupt_answer

TASK = registry.get_task("mini_gsm")
GOLD = "<think>3+3=6 6+5=11 11-1=10</think><answer>10</answer>"
WRONG = "<think>3+3=6 6+5=12 12-1=11</think><answer>11</answer>"
GUESS = "<think></think><answer>4</answer>"


def flags(*values):
    return torch.tensor(values, dtype=torch.bool)


def test_the_worked_examples():
    made = reverse_reward(flags(1, 1, 0, 1), flags(0, 0, 0, 1), torch.tensor([0.8, 0.2, 0.8, 0.8]), torch.tensor([0.6, 0.4, 0.6, 0.6]), 0.5, 0.5)
    assert made.tolist() == pytest.approx([1.7, 1.3, -1, 0])


def test_the_plausibility_is_the_logit_whose_sigmoid_is_the_likelihood():
    logprobs, mask = torch.tensor([[-0.5, -1.5, 9.0], [0.0, 0.0, 0.0]]), torch.tensor([[1.0, 1, 0], [0, 0, 0]])
    model = compute_mean_likelihood(logprobs, mask)
    assert model.tolist() == pytest.approx([torch.tensor(-1.0).exp().item(), 0])
    assert torch.sigmoid(compute_plausibility(model)).tolist() == pytest.approx(model.tolist(), abs=1e-5)
    assert torch.isfinite(compute_plausibility(torch.tensor([0.0, 1.0]))).all()


def test_reasoning_is_judged_without_the_gold_answer():
    assert reasoning_quality(GOLD) == 1.0
    assert reasoning_quality(WRONG) == pytest.approx((1 + 1 + 1 + 2 / 3) / 4)
    assert reasoning_quality("<think>3+3=6 so 7-1=6</think><answer>5</answer>") < reasoning_quality(WRONG)
    assert reasoning_quality(GUESS) == reasoning_quality("") == 0


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=6), st.permutations(range(6)))
def test_wrong_beats_right_beats_malformed_whatever_the_order(members, order):
    columns = list(zip(*members, strict=True))
    formed, right, model, reasoning = flags(*columns[0]), flags(*columns[1]), torch.tensor(columns[2]), torch.tensor(columns[3])
    made = reverse_reward(formed, right, model, reasoning, 0.5, 0.5)
    assert torch.isfinite(made).all()
    for value, is_formed, is_right in zip(made.tolist(), columns[0], columns[1], strict=True):
        assert (-1 if not is_formed else 0 if is_right else 1) <= value <= (-1 if not is_formed else 0 if is_right else 2)
    order = [place for place in order if place < len(members)]
    assert torch.equal(reverse_reward(formed[order], right[order], model[order], reasoning[order], 0.5, 0.5), made[order])


def test_without_weights_it_is_the_accuracy_turned_over():
    batch = rollout_batch([1, 0, 1, 1], 4, texts=[GOLD] * 4, mask=torch.ones(4, 2), reference_logprobs=torch.full((4, 2), -1.0))
    made = PNS(Config(w_rm=0, w_cot=0)).rewards(batch, batch.reward)
    assert made.tolist() == [0, 1, 0, 0]
    assert torch.allclose(z_score(made, 4), -z_score(batch.reward, 4))


def test_a_masked_row_and_an_empty_answer_stay_finite():
    mask = torch.tensor([[1.0], [0.0]])
    batch = rollout_batch([0, 0], 2, texts=[WRONG, ""], mask=mask, reference_logprobs=torch.tensor([[-2.0], [0.0]]))
    method = PNS()
    assert method.rewards(batch, batch.reward).tolist() == pytest.approx([1 + 0.5 * 0.1353 + 0.5 * reasoning_quality(WRONG), -1], abs=1e-4)
    assert method.collect()["wrong"] == 0.5


def test_the_loss_of_pairs_is_the_bases():
    batch = pair_batch(torch.zeros(2, 1), torch.zeros(2, 1), rows=[{"gap": 1.0, "negative": "plausible"}, {"gap": -3.0, "negative": "own"}])
    method = PNS()
    assert method.pair_loss(batch, torch.tensor([2.0, -1.0]), lambda score: score * 3).tolist() == [6.0, -3.0]
    assert method.collect() == {"gap": -1.0, "accuracy/plausible": 1.0, "accuracy/own": 0.0}


@pytest.mark.training
def test_two_real_steps_of_the_negative_generator(two_steps):
    trained = two_steps("pns", base="grpo")
    for rollout in trained.rollouts:
        shaped = rollout.shaped["pns"]
        if not rollout.rewards["format"]:
            assert shaped == -1
        elif rollout.rewards["correct"]:
            assert shaped == 0
        else:
            assert 1 <= shaped <= 2
    assert "pns/wrong" in trained.steps[0]


@pytest.mark.training
def test_two_real_steps_on_plausible_negatives(tmp_path, two_steps, written_samples):
    rows = []
    for place, example in enumerate(TASK.examples("pairs", 24, 0, "easy")):
        sides = {"chosen": TASK.gold(example), "rejected": corrupt_answer(TASK.gold(example), "logic", random.Random(place)) or GUESS}
        rows.append({"prompt": example.prompt[0].content, **sides})
    file = tmp_path / "pairs.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    trained = two_steps("pns", {"candidates": 3}, trainer="dpo", dataset={"path": str(file)})
    first = trained.steps[0]
    assert first["pns/replaced"] == 1  # of three samples one is wrong in the right form
    assert sum(first[f"pns/gap_of_pairs/{place:02d}"] for place in range(20)) == pytest.approx(1)
    assert "pns/accuracy/plausible" in trained.steps[1]
