"""Agentic proposing: the card's rewards and stage advantages, GRPO on validity alone without them, and a prober that remembers."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.contract.problems import SpecError
from trainers.maths.advantages import z_score
from trainers.methods.context import RunContext
from trainers.methods.group import agentic_proposing
from trainers.methods.group.agentic_proposing import AgenticProposing, Config, reward_proposals, split_stages, standardise_members, weigh_skills
from trainers.methods.session import Session
from trainers.policies.sampling import Completion
from trainers.worlds.problems import Problems, ask_to_write, parse_chain

OK = "<information>ok</information>"
WORLD = Problems({"ask": "write"})
EXAMPLE = ask_to_write(["add"], parse_chain("9 +3"))
CHECKED = f"<think>9 +3</think><check>9 +3</check>{OK}<answer>9 +3</answer>"
AT_ONCE, INVALID = "<answer>9 +3</answer>", "<answer>9</answer>"


class Answering(RunContext):
    asked = 0

    def sample(self, examples, temperature=1.0, key="", model=None):
        self.asked += len(examples)
        return [SimpleNamespace(text=f"<answer>{example.reference if place % 2 else 0}</answer>") for place, example in enumerate(examples)]

    @property
    def reference(self):
        return None


def prepared(task=WORLD, **config):
    method = AgenticProposing(Config(attempts=2, **config))
    method.prepare(Answering(SimpleNamespace(task=task, weights={"correct": 1.0})))
    return method


def batch_of(texts):
    """A token a character; V is what the world says."""
    width = max(map(len, texts))
    mask = torch.tensor([[1.0] * len(text) + [0.0] * (width - len(text)) for text in texts])
    right = [WORLD.rewards["correct"].function(text, EXAMPLE) for text in texts]
    ends = [[min(len(text), place + 1) for place in range(width)] for text in texts]
    return rollout_batch(right, len(texts), texts=texts, mask=mask, ends=ends, examples=[EXAMPLE] * len(texts))


def test_the_worked_example_of_the_card():
    rewards = reward_proposals(torch.tensor([True, True, False, True]), torch.tensor([0.5, 0.8, 0.0, 1.0]), 1.0)
    assert rewards.tolist() == pytest.approx([1.5, 1.2, 0, 1.0])
    everybody = torch.ones(4, dtype=torch.bool)
    trajectory = standardise_members(rewards, everybody, 4)
    assert trajectory.tolist() == pytest.approx([1.0215, 0.4885, -1.6432, 0.1332], abs=1e-3)
    stage = standardise_members(torch.tensor([1.0, 1, 0, 1]), everybody, 4)
    assert stage.tolist() == pytest.approx([0.5774, 0.5774, -1.7321, 0.5774], abs=1e-4)
    assert (trajectory + 0.5 * stage)[0].item() == pytest.approx(1.3102, abs=1e-3)


@given(st.lists(st.tuples(st.floats(-3, 3), st.booleans()), min_size=1, max_size=8))
def test_only_members_are_compared(rows):
    values, members = torch.tensor([value for value, _ in rows]), torch.tensor([is_in for _, is_in in rows])
    made = standardise_members(values, members, len(rows))
    assert torch.isfinite(made).all()
    assert (made[~members] == 0).all()
    assert abs(made.sum().item()) < 1e-3
    if members.sum() == 1:
        assert (made == 0).all()


def test_a_problem_that_nobody_solves_earns_no_more_than_an_easy_one():
    assert reward_proposals(torch.tensor([True, True]), torch.tensor([0.0, 1.0]), 2.0).tolist() == [1, 1]


def test_stages_of_a_text():
    text = f"<think>9 +3</think><check>9</check><information>bad</information><check>9 +3</check>{OK}<answer>9 +3</answer>"
    spans = split_stages(text)
    assert {stage: text[slice(*span)] for stage, span in spans.items()} == {
        "draft": "9 +3",
        "check": "<check>9</check>",
        "refine": "<check>9 +3</check>",
        "final": "9 +3",
    }
    assert agentic_proposing.judge_stages(WORLD, EXAMPLE, text) == {"draft": 1, "check": 0, "refine": 1, "final": 1}
    assert agentic_proposing.judge_stages(WORLD, EXAMPLE, AT_ONCE) == {"final": 0}


@given(st.text(alphabet="<check>/answer think9+ ", max_size=60))
def test_any_text_has_stages(text):
    for start, end in split_stages(text).values():
        assert 0 <= start <= end <= len(text)
    assert set(agentic_proposing.judge_stages(WORLD, EXAMPLE, text)) == set(split_stages(text))


def test_tokens_of_a_stage_get_its_advantage_beside_the_episodes():
    batch = batch_of([CHECKED, AT_ONCE, INVALID])
    batch.shaped = batch.reward
    made = prepared(omega=0.5).advantages(batch, batch.reward)
    base = standardise_members(batch.reward, torch.ones(3, dtype=torch.bool), 3)
    final = standardise_members(torch.tensor([1.0, 0, 0]), torch.ones(3, dtype=torch.bool), 3)  # only the first was checked
    draft = batch.span(0, *split_stages(CHECKED)["draft"])
    assert torch.allclose(made[0][draft], base[0])  # nobody else has one to be compared with
    assert torch.allclose(made[0][batch.span(0, *split_stages(CHECKED)["final"])], base[0] + 0.5 * final[0])
    assert torch.allclose(made[1][8:12], base[1] + 0.5 * final[1])
    assert torch.allclose(made[1][:8], base[1])


def test_without_its_weights_it_is_grpo_on_validity():
    batch = batch_of([CHECKED, AT_ONCE, INVALID, INVALID])
    method = prepared(lam=0, omega=0)
    batch.shaped = method.rewards(batch, batch.reward)
    assert torch.equal(batch.shaped, batch.reward)
    made = method.advantages(batch, batch.reward)
    assert torch.allclose(made[:, 0], z_score(batch.reward, 4, 1e-12, ddof=0), atol=1e-5)


def test_the_prober_answers_each_problem_once():
    method, batch = prepared(), batch_of([CHECKED, AT_ONCE, INVALID])
    first, second = method.rewards(batch, batch.reward), method.rewards(batch, batch.reward)
    assert method.run.asked == 2  # one valid problem
    assert first.tolist() == second.tolist() == [1.5, 1.5, 0]
    assert method.skills == {"add": [6, 4]}
    again = prepared()
    again.restore(method.state())
    assert again.state() == method.state()


def test_what_is_seldom_written_well_is_asked_for_more_often():
    assert weigh_skills(["add"], {"add": 0.9, "take": 0.1}, 0.5) == pytest.approx(1.0)
    assert weigh_skills(["take"], {"add": 0.9, "take": 0.1}, 0.5) == pytest.approx(5.0)
    assert weigh_skills([], {}, 0.4) == weigh_skills(["double"], {"add": 1.0}, 0.4) == pytest.approx(2.0)


def test_other_tasks_are_refused():
    with pytest.raises(SpecError, match="requests to write"):
        prepared(Problems())


@pytest.mark.training
def test_two_real_steps(two_steps, monkeypatch):
    texts = (CHECKED, AT_ONCE, INVALID, f"<check>9 +3</check>{OK}<answer>9</answer>")

    def complete(session, *rest, **more):
        made = []
        for place, ids in enumerate(session.run.prompt_ids(session.prompts)):
            text = texts[place % 4].replace("9 +3", "9 +3 *2 -1")  # with all skills, so that it is what any prompt asks for
            tokens = session.run.completion_ids(text)
            zeros = [0.0] * len(tokens)
            made.append(Completion(ids, tokens, [1] * len(tokens), logprobs=zeros, entropies=zeros, text=text))
        return made

    monkeypatch.setattr(Session, "complete", complete)
    task = {"name": "problems", "difficulty": "easy", "options": {"ask": "write"}}
    trained = two_steps(
        "agentic-proposing", {"attempts": 2}, task=task, policy={"kind": "tiny", "cold_start": False}, training__max_completion_length=40
    )
    for rollout in trained.rollouts:
        assert rollout.shaped["agentic-proposing"] >= rollout.rewards["correct"]
    assert "agentic-proposing/stage/check" in trained.steps[1]
    assert trained.steps[1]["agentic-proposing/valid"] == 0.5
