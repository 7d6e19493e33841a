"""Retro*: the card's numbers, order alone without consistency, documents of a query in one batch."""

import random
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.contract.events import Message
from trainers.contract.problems import SpecError
from trainers.methods.group.retro_star import KEY, Config, RetroStar, compute_agreement_rewards, compute_order_rewards, compute_ordering_auc, score_of
from trainers.methods.history import History
from trainers.tasks import registry
from trainers.tasks.base import Example

RELEVANT, OTHERS = [72.0, 80.0, 95.0, 60.0], [50.0, 65.0, 40.0, 75.0]
SCORES = st.lists(st.one_of(st.integers(0, 100).map(float), st.just(float("nan"))), min_size=8, max_size=8)


def batch_of(scores, group=4, queries=1):
    """Half of each query's groups are the relevant document's."""
    facts = [[row * queries // len(scores), (row // group) % 2 == 0] for row in range(len(scores))]
    examples = [Example([Message("user", "?")], "0", {KEY: fact}) for fact in facts]
    texts = [f"<answer>{score if score != score else int(score)}</answer>" for score in scores]
    return rollout_batch([0.0] * len(scores), group, texts=texts, examples=examples)


def rewards_of(scores, **config):
    return RetroStar(Config(**{"alpha": 0.5, "tau": 5.0, **config})).rewards(batch_of(scores), torch.zeros(len(scores)))


def test_the_worked_examples():
    assert compute_agreement_rewards(torch.tensor([RELEVANT]), 5.0).tolist() == [[0, 1, -1, 0]]
    queries, relevant = torch.zeros(8), torch.tensor([True] * 4 + [False] * 4)
    order = compute_order_rewards(torch.tensor(RELEVANT + OTHERS), queries, relevant)
    assert order.tolist() == [0.75, 1, 1, 0.5, 1, 0.75, 1, 0.5]
    assert rewards_of(RELEVANT + OTHERS)[:4].tolist() == [0.375, 1.0, 0.0, 0.25]


def test_without_consistency_only_the_order_counts():
    assert rewards_of(RELEVANT + OTHERS, alpha=0.0).tolist() == [0.75, 1, 1, 0.5, 1, 0.75, 1, 0.5]


def test_a_small_spread_earns_and_costs_nothing():
    assert compute_agreement_rewards(torch.tensor([RELEVANT]), 18.5).tolist() == [[0] * 4]
    assert (
        compute_agreement_rewards(torch.tensor([[50.0, 50, 50, 50], [40, 60, 40, 60]]), 0.0).tolist() == [[0] * 4] * 2
    )  # nobody is nearer than another


def test_the_published_threshold_is_20():
    """Appendix C, table 5; 20 points are one interval of its rubric. Exactly 20 away counts, in any rounding."""
    assert (Config().alpha, Config().tau) == (0.75, 20.0)
    assert compute_agreement_rewards(torch.tensor([[70.0, 74, 66, 88]]), Config().tau).tolist() == [[0] * 4]  # 13.5 away
    assert compute_agreement_rewards(torch.tensor([[50.0, 50, 50, 50, 50, 75]]), 20.833333333).tolist() == [[1] * 5 + [-1]]
    assert compute_agreement_rewards(torch.tensor([[40.0, 60, 65, 95]]), Config().tau).tolist() == [[0, 0, 1, -1]]


@pytest.mark.parametrize(("said", "score"), [("73", 73), (" 100 ", 100), ("101", None), ("-1", None), ("7.5", None), ("²", None), ("", None)])
def test_a_score_is_a_whole_number_up_to_100(said, score):
    found = score_of(f"<think></think><answer>{said}</answer>")
    assert found == score if score is not None else found != found


@given(SCORES, st.permutations(range(4)))
@settings(deadline=None, max_examples=40)
def test_rewards_are_finite_bounded_and_follow_their_rows(scores, order):
    made = rewards_of(scores)
    assert ((made >= -0.5) & (made <= 1.0)).all()
    turned = [*(scores[place] for place in order), *scores[4:]]
    assert torch.allclose(rewards_of(turned)[:4], made[list(order)])
    assert all(value == -0.5 for value, score in zip(made.tolist(), scores, strict=True) if score != score)


@given(SCORES, st.integers(-20, 20))
@settings(deadline=None, max_examples=40)
def test_a_shift_of_all_scores_changes_nothing(scores, shift):
    here, there = torch.tensor([scores]).double(), torch.tensor([scores]).double() + shift
    queries, relevant = torch.zeros(8), torch.tensor([True, False] * 4)
    assert torch.equal(compute_order_rewards(here[0], queries, relevant), compute_order_rewards(there[0], queries, relevant))


@pytest.mark.parametrize("scores", [[float("nan")] * 4, [50.0] * 4, [50.0, float("nan"), float("nan"), float("nan")]])
def test_a_document_alone_in_its_batch_has_finite_rewards(scores):
    method = RetroStar()
    made = method.rewards(batch_of(scores), torch.zeros(4))
    assert torch.isfinite(made).all()
    assert all(value == value for value in method.collect().values())


def test_the_order_is_judged_within_a_query():
    scores, queries = torch.tensor([80.0, 20, 60, 60, 10]), torch.tensor([0, 0, 1, 1, 2])
    relevant = torch.tensor([True, False, True, False, True])
    assert compute_ordering_auc(scores, queries, relevant).item() == 0.75


def run_of(prompts):
    training = SimpleNamespace(prompts_per_batch=lambda: prompts)
    return SimpleNamespace(task=registry.get_task("mini_gsm"), rng=lambda *key: random.Random(str(key)), training=training)


def test_a_batch_holds_all_documents_of_its_queries():
    run, method = run_of(6), RetroStar(Config(others=2))
    method.prepare(run)
    rows = method.data(run.task.examples("train", 20, 0, "easy"), run)
    assert [row.data[KEY][1] for row in rows[:3]] == [True, False, False]
    weights = method.curriculum(History(len(rows), 10, step=1))
    drawn = [rows[place].data[KEY][0] for place in weights.nonzero().flatten().tolist()]
    assert len(drawn) == 6
    assert all(drawn.count(query) == 3 for query in drawn)
    assert not torch.equal(weights, method.curriculum(History(len(rows), 10, step=2)))


def test_examples_that_do_not_say_how_they_are_solved_are_refused():
    run = run_of(2)
    unknown, known = Example([Message("user", "?")], "1"), run.task.examples("train", 2, 0, "easy")
    with pytest.raises(SpecError, match="0 of 5 examples say how they are solved"):
        RetroStar().data([unknown] * 5, run)
    assert len(RetroStar().data([unknown, *known], run)) == 4


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("retro-star", {"alpha": 0.5})
    for step in (1, 2):
        groups = {r.group: r for r in trained.rollouts if r.step == step}
        assert sorted(r.reference for r in groups.values()) == ["0", "100"]
        questions = {r.prompt[-1].content.split("\n")[0] for r in groups.values()}
        assert len(questions) == 1
    assert all(-0.5 <= r.shaped["retro-star"] <= 1 for r in trained.rollouts)
    assert trained.steps[0]["retro-star/scored"] > 0
