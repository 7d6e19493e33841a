"""ROSA: the target of a rejection, the step towards it, and that a conversation leaves nothing behind."""

import hashlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.conftest import make_spec
from tests.trainers.methods.turn_scripts import script_turns
from trainers.catalog.entries import entries_for
from trainers.contract import stacking
from trainers.methods.worlds.rosa import Config, Jacobian, Rosa, compute_step, solve_by_conjugate_gradient, solve_step, tilt_target
from trainers.worlds.interview import Interview

TASK = {"name": "interview", "difficulty": "medium", "options": {"about": "rejections"}}
PI = torch.tensor([[0.6, 0.3, 0.1]], dtype=torch.double)
FIRST = torch.tensor([0])


def draw_logits(tokens, words, seed=0):
    return torch.randn(tokens, words, dtype=torch.double, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("feedback", "target"), [(-1.0, [0.3556, 0.4833, 0.1611]), (1.0, [0.8031, 0.1477, 0.0492])])
def test_the_worked_example(feedback, target):
    made = tilt_target(PI, FIRST, feedback, 1.0)
    assert made[0].tolist() == pytest.approx(target, abs=6e-5)
    assert torch.allclose(made, torch.softmax(PI.log() + torch.tensor([feedback, 0, 0]), -1))


def test_products_with_vectors_are_those_of_the_dense_jacobian():
    logits, theta = draw_logits(3, 5), draw_logits(1, 5, 1)[0]

    def read(bias):
        return torch.softmax(logits + bias, -1)

    dense = torch.autograd.functional.jacobian(read, theta)  # (T, V, V)
    made, weights, direction = Jacobian.of(read, theta), draw_logits(3, 5, 2), draw_logits(1, 5, 3)[0]
    assert torch.allclose(made.pull(weights), torch.einsum("tvp,tv->p", dense, weights))
    assert torch.allclose(made.push(direction), dense @ direction)


@given(st.integers(1, 4), st.integers(2, 7), st.integers(0, 100))
def test_conjugate_gradient_solves_what_a_dense_solver_solves(tokens, words, seed):
    logits, theta, damping = draw_logits(tokens, words, seed), draw_logits(1, words, seed + 1)[0], 1e-3
    target = tilt_target(torch.softmax(logits + theta, -1), torch.zeros(tokens, dtype=torch.long), -1.0, 1.0)

    def read(bias):
        return torch.softmax(logits + bias, -1)

    jacobian = torch.autograd.functional.jacobian(read, theta).flatten(0, 1)
    matrix = jacobian.T @ jacobian + damping * torch.eye(words, dtype=torch.double)
    dense = torch.linalg.solve(matrix, jacobian.T @ (target - read(theta)).flatten())
    made, residuals = solve_step(read, theta, target, damping, 10 * words)
    assert torch.allclose(made, dense, rtol=1e-4, atol=1e-6)
    assert residuals[0] == 1
    assert residuals[-1] < 1e-6


def test_as_many_iterations_as_distinct_eigenvalues_are_enough():
    matrix = torch.diag(torch.tensor([1.0, 2.0, 2.0], dtype=torch.double))
    made, residuals = solve_by_conjugate_gradient(lambda u: matrix @ u, torch.ones(3, dtype=torch.double), 20)
    assert torch.allclose(made, torch.tensor([1.0, 0.5, 0.5], dtype=torch.double))
    assert len(residuals) == 3


def test_a_small_feedback_moves_the_logit_by_itself():
    """The exact step in logits, up to the constant that a softmax does not see."""
    delta, _ = compute_step(Config(damping=1e-9, iterations=20), PI.log(), torch.zeros(3, dtype=torch.double), FIRST, -1e-4)
    assert (delta - delta[1]).tolist() == pytest.approx([-1e-4, 0, 0], rel=1e-3, abs=1e-8)


@pytest.mark.parametrize("update", ["solve", "sgd", "none"])
def test_without_feedback_or_steps_the_policy_is_frozen(update):
    logits, bias = draw_logits(2, 4).log_softmax(-1), torch.zeros(4, dtype=torch.double)
    assert compute_step(Config(update=update), logits, bias, torch.tensor([1, 2]), 0.0)[0].abs().max() < 1e-9
    if update == "solve":
        assert not compute_step(Config(iterations=0), logits, bias, torch.tensor([1, 2]), -1.0)[0].any()


@pytest.mark.parametrize("update", ["solve", "sgd"])
@given(seed=st.integers(0, 50), feedback=st.sampled_from([-1.0, 1.0]))
def test_feedback_moves_the_probability_of_the_answer_its_way(update, seed, feedback):
    logits, bias = draw_logits(1, 5, seed), torch.zeros(5, dtype=torch.double)
    delta, _ = compute_step(Config(update=update), logits, bias, FIRST, feedback)
    before, after = (torch.softmax(logits + theta, -1)[0, 0] for theta in (bias, delta))
    assert (after - before) * feedback > 0


def test_the_solved_step_goes_further_than_a_gradient_step():
    solved, gradient = (
        compute_step(Config(update=update), PI.log(), torch.zeros(3, dtype=torch.double), FIRST, -1.0)[0] for update in ("solve", "sgd")
    )
    first = [torch.softmax(PI.log() + delta, -1)[0, 0] for delta in (solved, gradient)]
    assert first[0] < first[1] < 0.6


@pytest.fixture
def talk(make_session, monkeypatch):
    """A session in which the same wrong answer is given again and again, and the method."""

    def start(**config):
        session = make_session(Interview(TASK["options"]))
        script_turns(monkeypatch, lambda number, text: "<guess>zebra</guess>")
        method = Rosa(Config(**config))
        method.prepare(session.run)
        return session, method

    return start


def digest_weights(model):
    return hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values())).hexdigest()


def test_a_rejected_answer_is_repeated_less_after_every_rejection(talk):
    session, method = talk()
    before = digest_weights(session.model)
    made = method.rollout(session)
    assert digest_weights(session.model) == before
    for one in made:
        facts = [turn[-1].facts for turn in one.row.episode.turns(one.row.leaf)]
        assert [fact["rejected"] for fact in facts] == [True] * 5
        gained = [fact["repeat_frozen"] - fact["repeat"] for fact in facts[:4]]
        assert gained == sorted(gained)
        assert gained[0] > 0
        assert all(fact["target"] < fact["pi"] for fact in facts[:4])
        assert one.row.episode.bias is None
    logged = method.collect()
    assert logged["success_5"] == 0
    assert logged["repeat"] < logged["repeat_frozen"]
    assert logged["residual_0"] == 1


def test_held_out_conversations_leave_nothing_behind(talk):
    session, method = talk()
    session.learns, kept = False, method.state()
    method.rollout(session)
    assert method.state() == kept
    assert not session.run.store.state()["lists"]
    assert all(row.bias is None for row in session.begin())


@pytest.mark.parametrize("config", [{"update": "none"}, {"iterations": 0}])
def test_switched_off_it_is_the_frozen_policy(make_session, config):
    def play(method):
        session = make_session(Interview(TASK["options"]))
        torch.manual_seed(0)
        if method is None:
            nodes = session.begin()
            return session.finish(session.play([episode.root for episode in nodes]))
        method.prepare(session.run)
        return method.rollout(session)

    own, frozen = play(Rosa(Config(**config))), play(None)
    assert [one.ids for one in own] == [one.ids for one in frozen]
    assert [one.logprobs for one in own] == [pytest.approx(one.logprobs) for one in frozen]


@pytest.mark.parametrize(("about", "problems"), [("rejections", []), ("illness", ["task.options.about"])])
def test_it_wants_answers_to_be_rejected(tmp_path, about, problems):
    spec = make_spec(tmp_path, "procedure", task={"name": "interview", "options": {"about": about}}, methods=[{"name": "rosa"}])
    assert [problem.field for problem in stacking.check_stack(spec, entries_for(spec)).problems] == problems


@pytest.mark.training
def test_two_real_rounds(two_steps):
    settings = {"task": TASK, "policy": {"kind": "tiny", "cold_start": False}}
    trained = two_steps("rosa", trainer="procedure", training__max_completion_length=48, training__prompts=8, **settings)
    for step in trained.steps:
        assert {"rosa/success_1", "rosa/success_5"} <= step.keys()
    assert len(trained.rollouts) == 16
