"""Worst variant: which settings there are, which one is added, what a batch is drawn from, and uniform mixing."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.methods.history import History
from trainers.methods.worlds.worst_variant import Config, Variant, WorstVariant, add_worst_variant, list_variants
from trainers.policies.sampling import Completion
from trainers.worlds.search import Search

REWARDS = st.lists(st.floats(0, 1), min_size=1, max_size=8)


def test_the_worked_example():
    assert list_variants(0.6, 3, 2) == [Variant(junk, relations) for relations in (1, 2) for junk in (0.0, 0.3, 0.6)]
    listed = add_worst_variant([0], [0.9, 0.7, 0.4])
    assert listed == [0, 2]
    assert add_worst_variant(listed, [0.8, 0.6, 0.7]) == [0, 2, 1]
    assert add_worst_variant(listed, [0.3, 0.6, 0.7]) == listed


@given(REWARDS, st.data())
def test_the_worst_is_on_the_list_afterwards_and_nothing_leaves_it(rewards, data):
    before = data.draw(st.lists(st.sampled_from(range(len(rewards))), unique=True))
    after = add_worst_variant(before, rewards)
    assert after[: len(before)] == before
    assert len(after) <= len(before) + 1
    assert min(rewards) in [rewards[number] for number in after]


def make_run(world, solved=()):
    """A run whose policy is right in the settings ``solved`` alone."""

    def sample(examples, key):
        texts = [world.gold(example) if example.data["variant"] in solved else "<answer>none</answer>" for example in examples]
        return [Completion([], [0, 0], [1, 0], text=text) for text in texts]

    attempt = SimpleNamespace(spec=SimpleNamespace(task=SimpleNamespace(difficulty="easy")))
    score = world.rewards["correct"].function
    return SimpleNamespace(
        task=world, seed=0, attempt=attempt, sample=sample, score=lambda example, text: score(text, example), written_tokens=0, examples=[]
    )


def prepared(run, **config):
    method = WorstVariant(Config(every=5, prompts=4, **config))
    method.prepare(run)
    run.examples = method.data([None] * 3, run)
    return method


def weigh(method, run, step):
    history = History(len(run.examples), 100)
    history.step = step
    return method.curriculum(history).tolist()


def test_every_setting_has_prompts_of_its_own_chain_and_rate():
    run = make_run(Search())
    prepared(run, noise=0.5, rates=2)
    assert [example.data["variant"] for example in run.examples] == [number for number in range(4) for _ in range(3)]
    assert [example.data["junk"] for example in run.examples[::3]] == [0, 0.5, 0, 0.5]
    assert {len(example.data["evidence"]) for example in run.examples[:6]} == {2}
    assert {len(example.data["evidence"]) for example in run.examples[6:]} == {3}


def test_batches_are_drawn_from_the_settings_found_so_far():
    run = make_run(Search(), solved={0, 1, 2})
    method = prepared(run, noise=0.0, rates=2)
    assert weigh(method, run, 1) == weigh(method, run, 5) == [1] * 3 + [0] * 9
    assert run.written_tokens == 0
    assert weigh(method, run, 6) == [1] * 3 + [0] * 6 + [1] * 3
    assert run.written_tokens == 16
    logged = method.collect()
    assert (logged["worst"], logged["mean"], logged["reward/4"]) == (0, 0.75, 0)
    resumed = prepared(run, noise=0.0, rates=2)
    resumed.restore(method.state())
    assert weigh(resumed, run, 7) == weigh(method, run, 7)


def test_what_is_looked_at_is_neither_trained_on_nor_held_out():
    run = make_run(Search())
    method = prepared(run)
    world = Search({"hops": 1})
    looked = [example.prompt for example in method.draw_prompts(run, 0, "pairs", 16)]
    assert looked == [example.prompt for example in world.examples("pairs", 16, 0, "easy")]
    assert [example.prompt for example in method.draw_prompts(run, 0, "train", 3)] == [
        example.prompt for example in world.examples("train", 3, 0, "easy")
    ]


def test_beginning_with_all_is_grpo_on_the_mixture():
    run = make_run(Search())
    method = prepared(run, begin="all")
    for step in (1, 6):
        assert weigh(method, run, step) == torch.ones(len(run.examples)).tolist()
    assert method.listed == list(range(6))


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    config = {"every": 1, "prompts": 4, "rates": 2}
    trained = two_steps("worst-variant", config, base="grpo", task__name="search", **{**written_episodes, "training__prompts": 8})
    assert trained.steps[0]["worst-variant/listed"] == 1
    assert "worst-variant/worst" not in trained.steps[0]
    assert 0 <= trained.steps[1]["worst-variant/worst"] <= trained.steps[1]["worst-variant/mean"] <= 1
