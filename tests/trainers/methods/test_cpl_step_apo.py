"""CPL: the card's numbers, which steps are paired, that only the steps count, and real steps of both trainers."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import logsigmoid

from tests.trainers.methods.batches import pair_batch
from tests.trainers.methods.move_trees import every_move, make_tree  # noqa: F401
from trainers.adapters.dpo import method_loss
from trainers.methods.bases.dpo import DPO
from trainers.methods.stack import Stack
from trainers.methods.value_search import ValueSearch, list_open_positions
from trainers.methods.worlds.cpl_step_apo import Config, CPLStepAPO, list_pairs, list_plans, measure_correlation, pair_by_sign
from trainers.worlds.rewrites import Rewrites

WORLD = Rewrites()
VALUES = st.lists(st.floats(-1, 1), max_size=6)


def loss_of(config, gap, chosen, rejected):
    """Of one pair whose sides have one token each."""
    method = CPLStepAPO(Config(**config))
    method.prepare(SimpleNamespace(tokenizer=None))
    rows = [{"q_chosen": gap / 2 + 0.1, "q_rejected": 0.1 - gap / 2}]
    batch = pair_batch(torch.tensor([[chosen]], requires_grad=True), torch.tensor([[rejected]]), beta=0.3, rows=rows)
    return method, batch, method_loss(Stack(DPO(), [method]), batch, lambda score: -logsigmoid(score))


def test_the_worked_example():
    _, _, loss = loss_of({}, 1.0, 0.5, -0.5)  # h = 1, Q = .6 and -.4
    assert loss.item() == pytest.approx(1.1032, abs=1e-4)
    method, _, loss = loss_of({"alpha": 0.0}, 1.0, 0.5, -0.5)
    assert loss.item() == pytest.approx(0.5544, abs=1e-4)
    logged = method.collect()
    assert (logged["value_gap"], logged["implicit_gap"]) == (pytest.approx(1.0), pytest.approx(0.3))


@pytest.mark.parametrize("gap", [0.2, 1.0, 2.0])
def test_the_gradient_is_beta_times_the_chance_of_missing_the_margin(gap):
    _, batch, loss = loss_of({}, gap, 0.5, -0.5)
    loss.backward()
    expected = -0.3 * torch.sigmoid(torch.tensor(-(0.3 - gap)))
    assert batch.chosen_logprobs.grad.item() == pytest.approx(expected.item(), abs=1e-6)


@given(VALUES)
def test_pairs_are_all_of_opposite_signs(values):
    pairs = pair_by_sign(values)
    assert len(set(pairs)) == len(pairs) == sum(value > 0 for value in values) * sum(value < 0 for value in values)
    assert all(values[better] > 0 > values[worse] for better, worse in pairs)


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=6))
def test_a_correlation_stays_in_its_range(pairs):
    one, other = (torch.tensor(side, dtype=torch.float64) for side in zip(*pairs, strict=True))
    assert -1.001 <= measure_correlation(one, other) <= 1.001


def grown():
    """4 to 11: the way, and two wrong steps from the start; one of them was never visited."""
    tree = make_tree(WORLD, "From 4 to 11 in 3 moves.", [["*2", "+3"], ["*2", "*2"], ["-1"], ["+3"]])
    for state, mean in zip(tree.positions, (0.5, 1.0, -0.8, -0.25, None), strict=True):
        state.notes |= {} if mean is None else {"mean": mean}
    return tree


def test_siblings_of_opposite_value_are_pairs_and_only_their_own_words_are_marked():
    rows = list_pairs(grown())
    before = "<move>*2</move><information>8 to 11</information>"
    texts = [(row["chosen"][0]["content"], row["rejected"][0]["content"]) for row in rows]
    assert texts == [("<move>*2</move>", "<move>-1</move>"), (before + "<move>+3</move>", before + "<move>*2</move>")]
    assert [(row["q_chosen"], row["q_rejected"]) for row in rows] == [(0.5, -0.25), (1.0, -0.8)]
    for row, (chosen, rejected) in zip(rows, texts, strict=True):
        marked = [text[start:end] for text in (chosen, rejected) for start, end in row["own"][text]]
        assert marked == [text.removeprefix(before) for text in (chosen, rejected)]


def test_the_plan_is_the_shortest_right_path():
    tree = make_tree(WORLD, "From 4 to 11 in 6 moves.", [["+3", "*2", "-1", "-1", "-1"], ["*2", "+3"], ["-1"]])
    asked = []
    tokenizer = SimpleNamespace(
        encode=lambda text, **_: asked.append(text) or [1], eos_token_id=0, apply_chat_template=lambda *_, **__: {"input_ids": [[5]]}
    )
    (row,) = list_plans(tree, SimpleNamespace(task=WORLD, tokenizer=tokenizer))
    assert row["completion"][0]["content"] == "<move>*2</move><information>8 to 11</information><move>+3</move>"
    assert list_plans(make_tree(WORLD, "From 4 to 11 in 3 moves.", [["-1"]]), None) == []


def test_values_are_outcomes_at_ends_and_estimates_elsewhere(monkeypatch):
    tree = make_tree(WORLD, "From 4 to 11 in 2 moves.", [["*2", "+3"], ["*2", "-1"]])
    going, right, wrong = tree.positions
    monkeypatch.setattr(
        "trainers.methods.value_search.build_value_head", lambda run, loss: SimpleNamespace(estimate=lambda states: [0.25] * len(states))
    )
    monkeypatch.setattr("trainers.methods.value_search.read_last_states", lambda run, nodes: nodes)
    session = SimpleNamespace(is_right=lambda node: node.state["reached"])
    assert ValueSearch(None, 1, 0.1).estimate(session, [tree.root, right, going, wrong]) == [0.25, 1.0, 0.25, -1.0]
    assert list_open_positions(right) == [tree.root, going]


@pytest.mark.training
def test_two_real_steps(two_steps, every_move, written_episodes):  # noqa: F811
    config = {"iterations": 6, "episodes": 1, "head_steps": 5}
    more = {"training__sampled_prompts": 16, "training__max_length": 120, "training__beta": 0.3}
    trained = two_steps("cpl-step-apo", config, trainer="dpo", **more, **every_move)  # the run samples pairs of its own before
    assert trained.steps[0]["cpl-step-apo/implicit_gap"] == pytest.approx(0, abs=1e-4)
    assert 0 < trained.steps[0]["cpl-step-apo/value_gap"] <= 2
    assert trained.steps[0]["cpl-step-apo/data_solved"] > 0.5


@pytest.mark.training
def test_two_supervised_steps_on_plans(two_steps, every_move):  # noqa: F811
    config = {"iterations": 6, "episodes": 1, "head_steps": 5}
    trained = two_steps("cpl-step-apo", config, trainer="sft", training__demonstrations=8, **every_move)
    assert trained.steps[0]["cpl-step-apo/data_rows"] >= 4
