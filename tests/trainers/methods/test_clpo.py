"""CLPO: the card's example with the corrected KL scales, the plain run without rewriting, and stories told again with the same answer."""

import random

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from tests.trainers.methods.batches import loss_batch, rollout_batch
from trainers.contract.problems import SpecError
from trainers.contract.spec import parse_spec
from trainers.methods.prompts.clpo import CLPO, Config, Group, assign_group_places, difficulty_of, has_leaked_answer, kl_terms
from trainers.methods.stack import build_stack
from trainers.policies.sampling import Completion
from trainers.tasks import registry
from trainers.texts import stories

TASK = registry.get_task("mini_gsm")
EXAMPLES = TASK.examples("train", 5, 3, "medium")


class Scripted:
    """A session whose answers are right in the shares of a table, first for the originals, then for the rewrites in the order they are asked."""

    group_size = 4

    def __init__(self, originals, rewrites):
        self.examples = [EXAMPLES[i] for i in range(len(originals)) for _ in range(4)]
        self.prompts = [example.prompt for example in self.examples]
        self.rng = random.Random(0)
        self.tables = [originals, rewrites]
        self.asked = []

    def complete(self, prompts=None, examples=None):
        self.asked.append([prompt[-1].content for prompt in prompts or self.prompts])
        return [Completion([], text="right" if member < 4 * share else "wrong") for share in self.tables.pop(0) for member in range(4)]

    def right(self, examples, completions):
        return [one.text == "right" for one in completions]


def test_the_worked_example_with_the_corrected_scales():
    session = Scripted([0, 0.25, 0.5, 0.75, 1], [0.5, 0, 1])
    method = CLPO(Config())
    made = method.rollout(session)
    notes = [made[place * 4].notes for place in range(5)]
    assert [note["difficulty"] for note in notes] == ["hard", "hard", "medium", "easy", "easy"]
    assert [note["rewritten"] for note in notes] == [True, False, False, False, False]
    assert [0.001 * note["scale"] for note in notes if note["trained"]] == pytest.approx([0.0005, 0.0005, 0.001, 0.001])
    assert [note["trained"] for note in notes] == [True] * 4 + [False]
    assert session.prompts[0][-1].content == session.asked[1][0] != EXAMPLES[0].prompt[-1].content
    logged = method.collect()
    assert (logged["share/hard"], logged["share/medium"], logged["share/easy"]) == (0.4, 0.2, 0.4)
    assert (logged["accuracy_before/hard"], logged["accuracy_after/hard"]) == (0.125, 0.25)


def test_a_rewrite_moves_to_a_free_place_with_the_example_it_is_scored_by():
    session = Scripted([0.25, 1], [0.5])
    made = CLPO(Config()).rollout(session)
    assert [made[place * 4].notes["rewritten"] for place in range(2)] == [False, True]
    assert session.examples[4:] == [EXAMPLES[0]] * 4
    assert stories.parse_story(session.prompts[4][-1].content) is not None
    assert [one.text for one in made[4:]] == ["right", "right", "wrong", "wrong"]


def test_where_nothing_teaches_the_whole_batch_of_originals_is_kept():
    made = CLPO(Config()).rollout(Scripted([0, 1], [0]))
    assert [made[row].notes["trained"] for row in (0, 4)] == [True, True]
    assert [made[row].notes["scale"] for row in (0, 4)] == [0.5, 1.0]


def test_without_rewriting_it_is_the_plain_rollout():
    session = Scripted([0, 0.25, 0.5, 0.75, 1], [])
    made = CLPO(Config(mode="none")).rollout(session)
    assert [one.text for one in made] == [one.text for one in Scripted([0, 0.25, 0.5, 0.75, 1], []).complete()]
    assert session.prompts == [example.prompt for example in session.examples]
    assert len(session.asked) == 1


@given(st.lists(st.tuples(st.integers(0, 4), st.none() | st.integers(0, 4)), min_size=1, max_size=6))
def test_every_place_is_taken_once_and_only_groups_that_teach_are_trained_on(table):
    levels = [difficulty_of(share / 4, 0.3, 0.7) for share, _ in table]
    groups = [Group(i, False, share / 4, levels[i]) for i, (share, _) in enumerate(table)]
    groups += [Group(i, True, again / 4, levels[i]) for i, (_, again) in enumerate(table) if again is not None]
    seats = assign_group_places(groups, len(table))
    assert len(seats) == len(table)
    assert len({(group.place, group.rewritten) for group, _ in seats}) == len(table)
    teaching = [group for group in groups if group.teaches]
    trained = [group for group, kept in seats if kept]
    assert len(trained) == (min(len(teaching), len(table)) if teaching else len(table))
    assert not teaching or all(group.teaches for group in trained)
    hard_rewrites = [group for group in teaching if group.rank == 0]
    assert all(group in trained for group in hard_rewrites[: len(table)])


@given(st.integers(0, 300), st.sampled_from(["easy", "medium", "hard"]))
def test_stories_told_again_have_the_same_answer(seed, difficulty):
    (example,) = TASK.examples("train", 1, seed, difficulty)
    story = stories.parse_story(example.prompt[-1].content)
    assert str(story) == example.prompt[-1].content
    assert f"<think>{' '.join(story.equations)}</think>" in TASK.gold(example)
    for told in (stories.simplify_story(story), stories.retell_story(story, random.Random(seed))):
        assert stories.parse_story(str(told)) == told != story
        assert told.equations[-1].endswith(f"={example.reference}")


@pytest.mark.parametrize(
    "text", ["", "How many?", "Max has 3 apples. How many?x", "Max has 3 apples, eats 2. How many?", "Max has , buys 1. How many?"]
)
def test_other_texts_are_no_stories(text):
    assert stories.parse_story(text) is None


def test_a_rewrite_that_tells_the_answer_is_dropped():
    assert has_leaked_answer("It is 7.", "3+4?", "7")
    assert not has_leaked_answer("It has 17", "3+4?", "7")
    assert not has_leaked_answer("Again 7", "What is 7?", "7")


def test_the_kl_term_has_the_scale_of_its_sample_and_a_gradient_towards_the_reference():
    notes = [{"difficulty": "hard", "scale": 0.5}, {"difficulty": "easy", "scale": 1.0}, {"scale": 0.0}]
    rollout = rollout_batch([0.0] * 3, 3, notes=notes)
    reference = torch.tensor([[-1.0, -2.0, 0.0]] * 3, dtype=torch.double)
    mask = torch.tensor([[1.0, 1, 0]] * 3, dtype=torch.double)
    method = CLPO(Config(kl=2.0))

    def term(logprobs):
        return method.loss(loss_batch(logprobs, torch.zeros(3), rollout=rollout, mask=mask, reference_logprobs=reference))

    logprobs = torch.full((3, 3), -1.5, dtype=torch.double, requires_grad=True)
    found = term(logprobs)
    gap = torch.tensor([0.5, -0.5], dtype=torch.double)
    assert found[1, :2].tolist() == pytest.approx((2 * (gap.exp() - gap - 1)).tolist())
    assert torch.allclose(found[0], found[1] / 2)
    assert found[2].abs().sum() == found[:, 2].abs().sum() == 0
    assert torch.autograd.gradcheck(term, logprobs)


@given(st.floats(-200, 0), st.floats(-200, 0))
@example(-1.6766777727725734e-07, 0.0)
def test_the_kl_is_finite_and_never_negative(own, reference):
    assert 0 <= kl_terms(torch.tensor(own), torch.tensor(reference)).item() <= 10


def test_dropped_groups_have_no_advantage():
    notes = [{"trained": True}] * 2 + [{"trained": False}] * 2
    batch = rollout_batch([1, 0, 1, 0], 2, notes=notes)
    method = CLPO()
    assert method.advantages(batch, torch.tensor([1.0, -1, 1, -1])).tolist() == [1, -1, 0, 0]
    assert method.advantages(batch, torch.ones(4, 3)).sum() == 6
    assert method.collect()["trained"] == 0.5


def test_a_second_kl_penalty_is_refused():
    data = {"task": {"name": "mini_gsm"}, "training": {"trainer": "grpo", "beta": 0.1}, "methods": [{"name": "clpo"}], "output": "x"}
    with pytest.raises(SpecError, match="its own KL penalty"):
        build_stack(parse_spec(data))


@pytest.mark.training
def test_three_real_steps(two_steps, written_answers):
    trained = two_steps(
        "clpo", {"kl": 0.1}, base="grpo", training__per_device_train_batch_size=16, training__max_steps=3, training__learning_rate=1e-3
    )
    assert trained.steps[0]["clpo/loss"] == pytest.approx(0, abs=1e-6)  # the policy still is the reference
    assert trained.steps[-1]["clpo/loss"] > 1e-4
    asked = {example.prompt[-1].content for example in TASK.examples("train", 64, 0, "easy")}
    for place, step in enumerate(trained.steps, 1):
        assert sum(step[f"clpo/share/{name}"] for name in ("hard", "medium", "easy")) == pytest.approx(1)
        rollouts = [rollout for rollout in trained.rollouts if rollout.step == place]
        anew = [rollout for rollout in rollouts if rollout.prompt[-1].content not in asked]
        assert step["clpo/rewritten"] == pytest.approx(len(anew) / len(rollouts))
        for rollout in anew:
            assert stories.parse_story(rollout.prompt[-1].content).equations[-1].endswith(f"={rollout.reference}")
