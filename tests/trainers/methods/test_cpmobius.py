"""CPMobius: the card's rewards of player and coach, problems that fill slots, a coach that learns, and a rollback."""

import random
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.contract.problems import SpecError
from trainers.maths.advantages import z_score
from trainers.methods.context import RunContext
from trainers.methods.prompts.cpmobius import Config, CPMobius, average_nonzero, compute_coach_loss, reward_majority, weigh_answers
from trainers.methods.session import Session
from trainers.policies.sampling import Completion
from trainers.worlds.problems import Problems

WORLD = Problems({"ask": "solve"})


def test_the_worked_examples_of_the_card():
    assert reward_majority(["7", "7", "3", None]) == [1, 1, -1, -1]
    assert reward_majority(["7", "7", "3", "3"]) == [-1] * 4
    assert reward_majority([None, None]) == [-1, -1]
    rewards = torch.tensor([1.0, 1, -1, -1])
    assert z_score(rewards, 4).tolist() == pytest.approx([0.866, 0.866, -0.866, -0.866], abs=1e-3)
    mask = torch.zeros(4, 30)
    for row, length in enumerate((30, 30, 10, 10)):
        mask[row, :length] = 1
    assert weigh_answers("advantage", rewards, mask) == pytest.approx(0.4330, abs=1e-3)
    assert 2 * weigh_answers("advantage", rewards, mask) == pytest.approx(0.8660, abs=1e-3)
    assert weigh_answers("advantage", rewards, torch.ones(4, 10)) is None  # equal lengths cancel out
    assert weigh_answers("delta", rewards, mask) == 1
    assert weigh_answers("reward", torch.tensor([1.0, 1, 1, -1]), mask) == pytest.approx(0.5)
    assert weigh_answers("reward", rewards, mask) is None


@given(st.lists(st.sampled_from(["1", "2", "3", None]), min_size=1, max_size=9))
def test_only_the_most_frequent_result_is_paid(results):
    made = reward_majority(results)
    paid = {result for result, reward in zip(results, made, strict=True) if reward > 0}
    assert len(paid) <= 1
    if paid:
        (winner,) = paid
        assert all(results.count(winner) > results.count(other) for other in set(results) - paid - {None})


@given(st.lists(st.floats(-3, 3), max_size=6))
def test_the_mean_leaves_zeros_out(values):
    made = average_nonzero(torch.tensor([*values, 0.0]))
    assert made is None or made == pytest.approx(average_nonzero(torch.tensor([*values, 0.0, 0.0])))


def test_the_coachs_gradient_is_reinforce_with_a_penalty():
    reference, mask = torch.tensor([[-1.0, -2.0], [-0.5, 0.0]], dtype=torch.float64), torch.tensor([[1.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    logprobs = (reference + 0.1).clone().requires_grad_(True)
    rewards = torch.tensor([2.0, -1.0], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda values: compute_coach_loss(values, reference, mask, rewards, 0.5), logprobs)
    compute_coach_loss(logprobs, reference, mask, rewards, 0.0).backward()
    assert torch.allclose(logprobs.grad, torch.tensor([[-2.0, -2.0], [1.0, 0.0]], dtype=torch.float64) / 3)


class Tiny(torch.nn.Module):
    """A weight for each token of a vocabulary of 4: enough of a policy for what the coach does."""

    def __init__(self, value=0.0):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([value, 0.0, 0.0, 0.0]))

    def forward(self, input_ids, attention_mask, use_cache):
        return SimpleNamespace(logits=self.weight.expand(*input_ids.shape, 4))


class Writing(RunContext):
    problems = ("9 +3 *2", "no problem", "7 -2")
    writes = 0

    def frozen(self, folder):
        return Tiny()

    def sample(self, examples, temperature=1.0, key="", model=None):
        made = []
        for _ in examples:
            text = f"<answer>{self.problems[self.writes % len(self.problems)]}</answer>"
            self.writes += 1
            made.append(Completion([1], [0, 2], [1, 1], text=text))
        return made


def prepared(task=WORLD, **config):
    method = CPMobius(Config(**config))
    tokenizer = SimpleNamespace(pad_token_id=0)
    spec = SimpleNamespace(seed=0, task=SimpleNamespace(difficulty="easy"))
    policy = SimpleNamespace(model=Tiny(), tokenizer=tokenizer, device=torch.device("cpu"))
    method.prepare(Writing(SimpleNamespace(task=task, spec=spec, policy=policy, weights={"correct": 1.0}, sampling_batch=8)))
    return method


def session_of(method, answers, groups=2, step=1):
    """Groups of 4 whose members answer ``answers`` in turn."""
    slots = method.data(WORLD.examples("train", groups, 0, "easy"), method.run)
    rows = [slot for slot in slots for _ in range(4)]

    class Answering(Session):
        def complete(self, prompts=None, examples=None, **rest):
            return [Completion([1], [2], [1], text=f"<answer>{answers[place % 4]}</answer>") for place in range(len(prompts))]

    return Answering(method.run, method.run.model, rows, [one.prompt for one in rows], 4, step, 9, 1.0, 8, random.Random(0)), slots


@pytest.fixture
def no_validation(monkeypatch):
    monkeypatch.setattr(CPMobius, "look_back", lambda self, session: None)


def test_problems_fill_the_slots_of_the_rows_that_they_are_asked_in(no_validation):
    method = prepared()
    session, slots = session_of(method, ["7", "7", "3", "5"])
    made = method.rollout(session)
    assert [slot.prompt[0].content for slot in slots] == ["What is 9 +3 *2?", "What is 7 -2?"]  # the second was written twice
    assert [slot.reference for slot in slots] == ["24", "5"]
    assert all(session.examples[row] is slots[row // 4] for row in range(8))
    assert [one.notes.get("problem") for one in made] == [0] * 4 + [1] * 4
    assert not any(one.notes.get("filtered") for one in made)


def test_a_group_whose_answers_all_agree_is_left_out(no_validation):
    method = prepared(rounds=2)
    session, _ = session_of(method, ["7", "7", "7", "7"])
    assert all("no problem was kept" in one.notes["filtered"] for one in method.rollout(session))
    assert method.written == []


def look_back(method, score, monkeypatch, step=1):
    session, _ = session_of(method, ["0"] * 4, step=step)
    made = [round(score * 10)] * 10
    monkeypatch.setattr("trainers.methods.prompts.cpmobius.Sampler", lambda *how: SimpleNamespace(complete=lambda examples: made))
    monkeypatch.setattr(type(session), "right", lambda self, examples, answers: [place < answers[0] for place in range(10)])
    method.look_back(session)


def test_a_coach_writes_more_of_what_made_the_player_better(monkeypatch):
    method = prepared(learning_rate=0.1, kl=0.0)
    look_back(method, 0.5, monkeypatch)
    for gain, sign in ((0.6, 1), (0.5, -1)):
        session, _ = session_of(method, ["7", "7", "3", "5"])
        monkeypatch.setattr(method, "look_back", lambda session: None)
        method.rollout(session)
        monkeypatch.delattr(method, "look_back")
        for one in method.written:
            one.worth = 1.0
        before = method.coach.weight[0].item()
        look_back(method, gain, monkeypatch)
        assert (method.coach.weight[0].item() - before) * sign > 0  # the coach's token 0 became likelier, then less so
    assert method.run.model.weight.tolist() == [0, 0, 0, 0]  # the player is another model


def test_a_player_without_gains_goes_back_to_its_last_one(monkeypatch):
    method = prepared(patience=2, rollback_from=1)
    for step, (score, weight) in enumerate([(0.5, 1.0), (0.6, 2.0), (0.6, 3.0), (0.5, 4.0)], 1):
        with torch.no_grad():
            method.run.model.weight[0] = weight
        look_back(method, score, monkeypatch, step)
    assert method.run.model.weight[0].item() == 2.0
    assert method.score is None
    other = prepared()
    other.restore(method.state())
    assert other.best["weight"][0].item() == 2.0


def test_a_frozen_coach_stays_as_it_was(monkeypatch):
    method = prepared(learning_rate=0)
    look_back(method, 0.5, monkeypatch)
    look_back(method, 0.9, monkeypatch)
    assert method.coach.weight.tolist() == [0, 0, 0, 0]


def test_other_tasks_are_refused():
    with pytest.raises(SpecError, match="problems to solve"):
        prepared(Problems())


@pytest.mark.training
def test_two_real_steps(two_steps, monkeypatch):
    original = RunContext.sample

    def sample(self, examples, temperature=1.0, key="", model=None):
        made = original(self, examples, temperature, key, model)
        for place, one in enumerate(made):
            one.text = f"<answer>{place + 4} +3</answer>"
        return made

    results = iter(range(10_000))

    def right(self, examples, completions):
        return [place % 7 < next(results) % 5 for place in range(len(examples))]

    monkeypatch.setattr(RunContext, "sample", sample)
    monkeypatch.setattr(Session, "right", right)  # so that there is a gain
    monkeypatch.setattr(CPMobius, "keeps", lambda self, texts: True)
    trained = two_steps(
        "cpmobius",
        {"validation": 7, "coach_reward": "delta"},
        task={"name": "problems", "difficulty": "easy", "options": {"ask": "solve"}},
        policy={"kind": "tiny", "cold_start": False},
        training__max_completion_length=12,
    )
    assert trained.steps[1]["cpmobius/kept_groups"] == 1
    assert {rollout.prompt[0].content for rollout in trained.rollouts} == {"What is 4 +3?", "What is 5 +3?"}
    assert {rollout.reference for rollout in trained.rollouts} == {"7", "8"}
    assert all(rollout.shaped["cpmobius"] in (-1, 1) for rollout in trained.rollouts)
