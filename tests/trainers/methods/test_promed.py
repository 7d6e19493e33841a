"""ProMed: the card's weights and rewards, whose tokens are paid, and where the worths of facts come from."""

import math
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.contract.events import Message
from trainers.maths.shapley import list_coalitions
from trainers.methods.worlds.promed import Config, ProMed, list_gains, list_hidden_facts, reward_turns, weigh_facts
from trainers.tasks.base import Example
from trainers.worlds.base import replay_episode
from trainers.worlds.interview import SYMPTOMS, Interview

WORLD = Interview()
FACTS = dict.fromkeys(SYMPTOMS, True)
EXAMPLE = Example([Message("user", "The patient has headache.")], "flu", {"complaint": "headache", "facts": FACTS, "told": []})


def play(*asked, answer="flu"):
    text = "".join(f"<ask>{fact}</ask><information>yes</information>" for fact in asked)
    return f"{text}<answer>{answer}</answer>"


def batch_of(*texts):
    """A token a character."""
    width = max(map(len, texts))
    mask = torch.tensor([[1.0] * len(text) + [0.0] * (width - len(text)) for text in texts])
    for row, text in enumerate(texts):
        at = 0
        while (at := text.find("<information>", at)) >= 0:
            end = text.index("</information>", at) + len("</information>")
            mask[row, at:end] = 0.0
            at = end
    ends = [[min(len(text), place + 1) for place in range(width)] for text in texts]
    right = [WORLD.rewards["correct"].function(text, EXAMPLE) for text in texts]
    return rollout_batch(right, len(texts), texts=list(texts), mask=mask, ends=ends, examples=[EXAMPLE] * len(texts))


def prepared(**config):
    method = ProMed(Config(**config))
    method.prepare(SimpleNamespace(task=WORLD))
    return method


def test_the_worked_example_of_the_card():
    weights = weigh_facts({"fever": 0.45, "cough": 0.25}, 2.0)
    assert list(weights.values()) == pytest.approx([0.525, 0.475], abs=1e-3)
    weights |= dict.fromkeys(set(SYMPTOMS) - set(weights), 0.0)
    made = reward_turns(replay_episode(WORLD, EXAMPLE, play("fever")), [], weights, True, Config())
    assert made == [("question", pytest.approx(3.05, abs=1e-3)), ("answer", 4.0)]


@given(st.dictionaries(st.sampled_from(SYMPTOMS), st.floats(-1, 1), min_size=1), st.floats(0.05, 50))
def test_weights_share_out_one_and_keep_the_order(values, temperature):
    weights = weigh_facts(values, temperature)
    assert sum(weights.values()) == pytest.approx(1.0)
    order = sorted(values, key=values.__getitem__)
    assert all(weights[low] <= weights[high] + 1e-12 for low, high in pairwise(order))
    assert max(weigh_facts(values, 1e6).values()) == pytest.approx(1 / len(values), abs=1e-4)


def test_a_fact_is_paid_once_and_what_the_prompt_tells_never():
    replay = replay_episode(WORLD, EXAMPLE, play("fever", "rash", "fever"))
    assert list_gains(replay, []) == [["fever"], ["rash"], [], []]
    assert list_gains(replay, ["rash"])[1] == []
    told = Example(EXAMPLE.prompt, "flu", {**EXAMPLE.data, "told": ["rash"]})
    assert "rash" not in list_hidden_facts(told)
    assert len(list_hidden_facts(EXAMPLE)) == 6


def test_a_turn_in_no_form_is_an_answer_without_reward():
    weights = dict.fromkeys(SYMPTOMS, 1 / 6)
    text = play("fever").removesuffix("<answer>flu</answer>") + "so"
    assert reward_turns(replay_episode(WORLD, EXAMPLE, text), [], weights, False, Config()) == [
        ("question", pytest.approx(2 / 6)),
        ("answer", 0.0),
    ]


def test_turns_are_compared_with_turns_of_their_kind():
    method, batch = prepared(measure="count"), batch_of(play("fever", "fever"), play("fever"), play(answer="cold"))
    made = method.advantages(batch, batch.reward)
    assert not made[batch.mask == 0].any()
    questions = [2 / 6 + 2, 2.0, 2 / 6 + 2]  # the second one of the first episode brings out nothing
    mean = sum(questions) / 3
    text = batch.texts[0]
    assert made[0, 0].item() == pytest.approx(questions[0] - mean, abs=1e-5)
    assert made[0, text.index("<ask>", 1)].item() == pytest.approx(questions[1] - mean, abs=1e-5)
    answers = [4.0, 4.0, 1.0]
    for row in range(3):
        own = made[row, batch.texts[row].index("<answer>") : len(batch.texts[row])]
        assert own.tolist() == pytest.approx([answers[row] - 3.0] * len(own), abs=1e-5)
    logged = method.collect()
    assert (logged["decisive_first"], logged["reward/answer"]) == (1.0, 3.0)


def test_at_any_temperature_the_decisive_fact_weighs_more_and_at_a_large_one_all_the_same():
    def know(method, asked):
        """Only fever tells the answer."""
        method.worths = {method.name_worth(one, some): 0.9 if "fever" in some else 0.3 for one, some in asked}

    for temperature, least in ((0.1, 0.9), (2.0, 0.2), (100.0, 1 / 6)):
        method = prepared(temperature=temperature)
        know(method, [(EXAMPLE, some) for some in list_coalitions(list_hidden_facts(EXAMPLE))])
        (weights,) = method.weigh_examples([EXAMPLE])
        assert weights["fever"] >= least
        assert max(weights, key=weights.__getitem__) == "fever"


def test_a_worth_is_the_probability_of_the_answer_in_the_context(make_session):
    session = make_session()
    method = ProMed()
    method.prepare(session.run)
    session.run.reference = session.model
    some = frozenset(["fever", "rash"])
    method.learn_worths([(EXAMPLE, some), (EXAMPLE, frozenset())])
    assert len(method.worths) == 2
    encode = session.run.tokenizer.encode
    before = [id_ for piece in method.name_worth(EXAMPLE, some)[1:-1] for id_ in encode(piece)]
    logprobs, _ = session.run.logprobs(session.run.prompt_ids([EXAMPLE.prompt]), [[*before, *encode("<answer>flu</answer>")]], session.model)
    expected = math.exp(logprobs[0, len(before) + 1 :].sum().item())
    assert method.worths[method.name_worth(EXAMPLE, some)] == pytest.approx(expected, rel=1e-4)
    kept = dict(method.worths)
    method.learn_worths([(EXAMPLE, some)])
    assert method.worths == kept


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    trained = two_steps("promed", {"temperature": 0.5}, base="grpo", task__name="interview", **written_episodes)
    for step in trained.steps:
        assert 0 < step["promed/weight_decisive"] < 1
    assert any(rollout.advantage for rollout in trained.rollouts)
