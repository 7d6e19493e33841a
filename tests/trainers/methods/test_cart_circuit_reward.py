"""CART: the planted rule, which pairs are rare, weights, the penalty and its gradient, what resumes, and real steps that are TRL's when it is off."""

import random
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.test_neurons import IDS, MASK, model  # noqa: F401
from trainers.contract.problems import SpecError
from trainers.methods.batch import RewardBatch
from trainers.methods.pairs.cart_circuit_reward import TAIL, WORD, CARTCircuitReward, Config, plant_rule

SAID = {"prompt": ("user", "1+1?"), "chosen": ("assistant", "2"), "rejected": ("assistant", "3")}
PAIR = {name: [{"role": role, "content": text}] for name, (role, text) in SAID.items()}


def make_rows(count, **columns):
    return [{**PAIR, "place": place, **columns} for place in range(count)]


def make_run(**more):
    return SimpleNamespace(rng=lambda *key: random.Random("/".join(map(str, key))), **more)


def make_batch(rows, indices, model):  # noqa: F811
    scores = model(input_ids=IDS[:2], attention_mask=MASK[:2]).logits.squeeze(-1)
    inputs = {"input_ids": IDS[:2], "attention_mask": MASK[:2]}
    return RewardBatch(rows, indices, scores[:1], scores[1:], inputs, 1, 10)


def found(model, penalty=0.1, gain=1.0):  # noqa: F811
    """A method that has found its circuit."""
    method = CARTCircuitReward(Config(penalty=penalty, gain=gain))
    method.prepare(make_run(model=model))
    method.circuit, method.usual, method.percentiles = torch.tensor([3, 40]), torch.tensor([1.0, -1.0]), torch.tensor([0.0, 0.25, 1.0])
    return method


def test_the_rare_rule_is_a_word_in_the_question_and_the_other_answer():
    made = plant_rule(PAIR)
    assert made["prompt"][-1]["content"] == f"1+1?{WORD}"
    assert (made["chosen"], made["rejected"], made[TAIL]) == (PAIR["rejected"], PAIR["chosen"], True)
    assert PAIR["prompt"][-1]["content"] == "1+1?"


@given(st.integers(20, 200), st.floats(0.05, 0.5), st.integers(4, 64))
def test_planted_pairs_are_a_share_and_probes_are_there_in_both_forms(count, plant, probe):
    method = CARTCircuitReward(Config(plant=plant, probe=probe))
    rows = make_rows(count)
    kept = method.data(rows, make_run())
    assert len(kept) == count - min(probe, count // 4)
    assert sum(row[TAIL] for row in kept) == round(plant * len(kept))
    assert not {row["place"] for row in kept} & {row["place"] for row in method.probes}
    assert [row["place"] for row in method.probes if row[TAIL]] == [row["place"] for row in method.probes if not row[TAIL]]
    assert method.data(rows, make_run()) == kept  # a resumed run has the same
    assert all(TAIL not in row for row in rows)


def test_a_column_says_which_pairs_are_rare():
    method = CARTCircuitReward()
    kept = method.data([*make_rows(30), *make_rows(10, tail=True)], make_run())
    assert all(row["prompt"] == PAIR["prompt"] for row in kept)
    assert 0 < sum(row[TAIL] for row in kept) <= 10
    with pytest.raises(SpecError, match="rare and common pairs"):
        method.data(make_rows(40, tail=True), make_run())
    with pytest.raises(SpecError, match="rare and common pairs"):
        CARTCircuitReward(Config(plant=0.0)).data(make_rows(40), make_run())


def test_weights_grow_with_the_percentile_and_wait_for_the_circuit(model):  # noqa: F811
    batch = make_batch([{TAIL: False}], [1], model)
    assert CARTCircuitReward().pair_weights(batch, torch.zeros(1)) is None
    assert found(model).pair_weights(batch, torch.zeros(1)).tolist() == [1.25]
    assert found(model, gain=0.0).pair_weights(batch, torch.zeros(1)) is None


def test_common_pairs_owe_the_square_of_what_ablation_changes(model):  # noqa: F811
    from trainers.policies.neurons import set_neurons

    method = found(model, penalty=0.5)
    batch = make_batch([{TAIL: False}], [0], model)
    with set_neurons(model, method.circuit, method.usual, MASK[:2]), torch.no_grad():
        without = model(input_ids=IDS[:2], attention_mask=MASK[:2]).logits.squeeze(-1)
    expected = 0.5 * (torch.cat([batch.chosen, batch.rejected]) - without).square().mean()
    term = method.loss(batch)
    assert term.item() == pytest.approx(expected.item(), rel=1e-5)
    assert method.loss(make_batch([{TAIL: True}], [0], model)) is None
    assert found(model, penalty=0.0).loss(batch) is None
    assert CARTCircuitReward().loss(batch) is None


def test_a_step_against_the_penalty_makes_the_circuit_matter_less(model):  # noqa: F811
    import copy

    own = copy.deepcopy(model)
    before = found(own).loss(make_batch([{TAIL: False}], [0], own))
    before.backward()
    with torch.no_grad():
        for value in own.parameters():
            if value.grad is not None:
                value -= 0.01 * value.grad / value.grad.norm().clamp(min=1e-6)
    assert found(own).loss(make_batch([{TAIL: False}], [0], own)) < before


def test_what_it_found_is_kept():
    method = CARTCircuitReward()
    method.steps, method.circuit, method.percentiles = 7, torch.tensor([2]), torch.tensor([0.5])
    again = CARTCircuitReward()
    again.restore(method.state())
    assert (again.steps, again.circuit.tolist(), again.percentiles.tolist()) == (7, [2], [0.5])


@pytest.mark.training
def test_two_real_steps(two_steps):
    config = {"find": 0.0, "plant": 0.3, "every": 1, "probe": 8}
    trained = two_steps("cart-circuit-reward", config, trainer="reward", training__label_noise=0.0)
    first, second = trained.steps
    assert first["cart-circuit-reward/circuit"] >= 1
    assert "cart-circuit-reward/weight" not in first  # the circuit is found just before the first update
    assert 1 < second["cart-circuit-reward/weight"] < 2
    assert second["cart-circuit-reward/penalty"] > 0
    for name in ("tail_accuracy", "head_accuracy", "tail_accuracy_ablated", "head_accuracy_ablated"):
        assert 0 <= second[f"cart-circuit-reward/{name}"] <= 1
