"""Sampling: statistics of the sampled tokens, turns, and where a completion ends."""

import pytest
import torch

from trainers.contract.events import Message
from trainers.policies import loading as policies
from trainers.policies import tiny
from trainers.policies.sampling import Sampler, Sampling
from trainers.tasks import registry
from trainers.tasks.base import Example, Reward, Task


class Echo(Task):
    """A world that answers every turn. The random policy hardly ever says the same twice, so any digit or letter ends its turn."""

    name = "echo"
    rewards = {"correct": Reward(lambda text, example: 0.0, "", 1.0)}
    stop = tuple("0123456789abcdefghijklmnopqrstuvwxyz")
    max_turns = 3
    max_turn_tokens = 30

    def __init__(self, answer="<information>x</information>"):
        self.answer = answer

    def respond(self, example, text):
        assert text.endswith(self.stop)
        return self.answer


@pytest.fixture(scope="module")
def policy():
    folder = tiny.ensure_untrained_policy()
    return policies.load_model(folder, torch.float32), policies.load_tokenizer(folder)


@pytest.fixture
def examples():
    return registry.get_task("mini_gsm").examples("heldout", 6, 0, "easy")


def sample(policy, task, examples, temperature=1.0, max_tokens=24, batch=4):
    torch.manual_seed(1)
    return Sampler(*policy, task, Sampling(temperature, max_tokens, batch)).complete(examples)


@pytest.mark.parametrize("temperature", [1.0, 0.5, 0.0])
def test_the_statistics_are_those_of_the_distribution_sampled_from(policy, examples, temperature):
    model, _tokenizer = policy
    for made in sample(policy, registry.get_task("mini_gsm"), examples, temperature):
        with torch.no_grad():
            logits = model(torch.tensor([made.prompt_ids + made.ids])).logits[0, len(made.prompt_ids) - 1 : -1]
        scores = torch.log_softmax(logits / (temperature or 1.0), -1)
        expected = scores[torch.arange(len(made.ids)), torch.tensor(made.ids)]
        assert torch.allclose(torch.tensor(made.logprobs), expected, atol=1e-3)
        assert torch.allclose(torch.tensor(made.entropies), torch.special.entr(scores.exp()).sum(-1), atol=1e-3)
        if not temperature:
            assert made.ids == logits.argmax(-1).tolist()


def test_batches_do_not_change_what_greedy_sampling_gives(policy, examples):
    one = sample(policy, registry.get_task("mini_gsm"), examples, 0.0, batch=1)
    all_at_once = sample(policy, registry.get_task("mini_gsm"), examples, 0.0, batch=6)
    assert [made.ids for made in one] == [made.ids for made in all_at_once]


def test_a_completion_is_cut_after_its_end_token_or_at_the_limit(policy, examples):
    model, tokenizer = policy
    model.generation_config.eos_token_id = list(range(2, 40))  # so that the random policy ends soon
    try:
        found = sample(policy, registry.get_task("mini_gsm"), examples * 4)
    finally:
        model.generation_config.eos_token_id = tokenizer.eos_token_id
    for made in found:
        assert all(id_ not in range(2, 40) for id_ in made.ids[:-1])
        assert made.finish_reason == ("stop" if made.ids[-1] in range(2, 40) else "length")
        assert made.finish_reason == "stop" or len(made.ids) == 24
    assert {made.finish_reason for made in found} == {"stop", "length"}


def test_the_policys_own_generation_config_neither_matters_nor_changes(policy, examples):
    model, _ = policy
    before = sample(policy, registry.get_task("mini_gsm"), examples)
    model.generation_config.top_k, model.generation_config.repetition_penalty = 1, 5.0
    try:
        assert [made.ids for made in sample(policy, registry.get_task("mini_gsm"), examples)] == [made.ids for made in before]
        assert model.generation_config.top_k == 1
    finally:
        model.generation_config.top_k, model.generation_config.repetition_penalty = None, None


def test_turns_alternate_until_there_are_no_more(policy, examples):
    _model, tokenizer = policy
    found = sample(policy, Echo(), examples, max_tokens=200)
    several = [made for made in found if len(made.turns) == 5]
    assert several
    for made in several:
        assert [turn.role for turn in made.turns] == ["assistant", "tool"] * 2 + ["assistant"]
        assert made.finish_reason in ("turns", "length", "stop")
        for turn in made.turns:
            text = tokenizer.decode(made.ids[turn.start : turn.end])
            assert (text == "<information>x</information>") == (turn.role == "tool")
            assert set(made.mask[turn.start : turn.end]) == {int(turn.role == "assistant")}
        assert len(made.ids) == len(made.mask) == len(made.logprobs) == len(made.entropies)
        assert all(value == 0.0 for value, mine in zip(made.logprobs, made.mask, strict=True) if not mine)


def test_the_worlds_answers_count_towards_the_longest_completion(policy, examples):
    found = sample(policy, Echo("word " * 20), examples, max_tokens=60)
    assert max(len(made.ids) for made in found) <= 60
    assert "length" in {made.finish_reason for made in found}


def test_an_episode_ends_when_the_world_says_so(policy, examples):
    for made in sample(policy, Echo(None), examples, max_tokens=100):
        assert [turn.role for turn in made.turns] == ["assistant"]


def test_hostile_answers_of_the_world_become_tokens(policy):
    example = Example([Message("user", "hi")], "")
    (made,) = sample(policy, Echo("\x00\ud800<script>"), [example], max_tokens=200)
    assert "\ud800" not in made.text
    if len(made.turns) > 1:
        assert "\u2400\ufffd<script>" in made.text


def test_a_stop_string_of_several_tokens_ends_a_turn(policy, examples):
    _model, tokenizer = policy
    task = Echo()
    task.stop = ("qz", *Echo.stop)  # no token of its own: the text has to be watched
    sampler = Sampler(*policy, task, Sampling(1.0, 100, 8))
    assert sampler.watch_text
    torch.manual_seed(0)
    for made in sampler.complete(examples):
        first = tokenizer.decode(made.ids[: made.turns[0].end])
        assert not any(stop in tokenizer.decode(made.ids[: made.turns[0].end - 1]) for stop in task.stop)
        assert any(stop in first for stop in task.stop) or made.finish_reason in ("stop", "length")
