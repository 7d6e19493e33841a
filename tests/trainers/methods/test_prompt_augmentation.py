"""Prompt augmentation: the card's rewards, the plain run with one template, and groups that share what they were asked."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.contract.events import Message
from trainers.methods.context import RunContext
from trainers.methods.prompts.prompt_augmentation import TEMPLATES, Config, PromptAugmentation, apply_prompt_template, format_share
from trainers.tasks.base import Example

FOUR = ("<think>", "</think>", "<answer>", "</answer>")
EXAMPLE = Example([Message("system", "You count."), Message("user", "3+4?")], "7")


def method(seed=0, **config):
    made = PromptAugmentation(Config(**config))
    made.prepare(RunContext(SimpleNamespace(spec=SimpleNamespace(seed=seed))))
    return made


def test_the_worked_examples():
    assert 1 + format_share("<think>3+4=7</think><answer>7", FOUR) == 1.75
    assert format_share("3+4=7</think><answer>8", FOUR[1:]) == pytest.approx(0.6667, abs=1e-4)
    assert 1 + format_share("7", ()) == 2


@given(st.text(alphabet="<>/thinkanswer 12", max_size=40), st.sampled_from(list(TEMPLATES.values())))
def test_the_format_reward_is_a_share_and_repeating_a_tag_forfeits_it(text, template):
    share = format_share(text, template.tags)
    assert 0 <= share <= 1
    assert format_share(text + "".join(template.tags) * 2, template.tags) == (0 if template.tags else 1)


@given(st.integers(1, 8), st.integers(1, 10_000), st.integers(0, 5))
def test_a_group_shares_one_template_and_a_resumed_run_draws_the_same(members, step, seed):
    made = method(seed).prompts(EXAMPLE, members, step)
    assert len(made) == members
    assert all(prompt == made[0] for prompt in made)
    assert made == method(seed).prompts(EXAMPLE, members, step)
    assert made[0][0] == EXAMPLE.prompt[0]
    assert "3+4?" in made[0][-1].content


def test_members_may_have_templates_of_their_own():
    forms = {prompt[-1].content for prompt in method(draw="member").prompts(EXAMPLE, 64, 1)}
    assert len(forms) == len(TEMPLATES)


def test_all_templates_are_used_about_equally():
    one = method()
    forms = [one.prompts(EXAMPLE, 1, step)[0][-1].content for step in range(900)]
    assert all(60 < forms.count(template.write("3+4?")) < 140 for template in TEMPLATES.values())


def test_one_template_without_weight_is_the_plain_run():
    plain = method(templates=1, format_weight=0.0)
    assert plain.prompts(EXAMPLE, 3, 5) == [EXAMPLE.prompt] * 3
    batch = rollout_batch([1, 0, 0.5, 0], 2)
    assert torch.equal(plain.rewards(batch, batch.reward), batch.reward)


def test_every_row_is_scored_by_the_tags_of_its_own_template():
    texts = ["<think>a</think><answer>7</answer>", "<think>a<answer>7</answer>", "7", "<answer></answer><answer>"]
    names = ["r1", "r1", "plain", "answer"]
    prompts = [apply_prompt_template(EXAMPLE.prompt, TEMPLATES[name]) for name in names]
    batch = rollout_batch([1, 0, 1, 0], 2, texts=texts, prompts=prompts, examples=[EXAMPLE] * 4)
    one = method()
    assert one.rewards(batch, batch.reward).tolist() == [2.0, 0.75, 2.0, 0.5]
    logged = one.collect()
    assert logged["share/r1"] == 0.5
    assert logged["accuracy/r1"] == 0.5
    assert "accuracy/formal" not in logged


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("prompt-augmentation", base="dapo", training__prompts=4)
    for rollout in trained.rollouts:
        (form,) = [t for t in TEMPLATES.values() if t.text != "{question}" and is_form(t, rollout.prompt[-1].content)] or [TEMPLATES["plain"]]
        assert rollout.shaped["prompt-augmentation"] == pytest.approx(rollout.reward + format_share(rollout.completion, form.tags))
    for step in trained.steps:
        assert sum(step[f"prompt-augmentation/share/{name}"] for name in TEMPLATES) == pytest.approx(1)
    groups = {(r.step, r.group): set() for r in trained.rollouts}
    for rollout in trained.rollouts:
        groups[rollout.step, rollout.group].add(rollout.prompt[-1].content)
    assert all(len(forms) == 1 for forms in groups.values())


def is_form(template, text):
    before, _, after = template.text.partition("{question}")
    return text.startswith(before) and text.endswith(after)
