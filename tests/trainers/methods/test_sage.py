"""SAGE: the card's gate and ladder, hints that never tell the answer, and the plain run when every group has a right answer."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.contract.events import Message
from trainers.methods.prompts.sage import SAGE, Config, compute_gate_probability, hint_of, make_example_key, next_level, with_hint, working_of
from trainers.policies.sampling import Completion
from trainers.tasks import registry

TASK = registry.get_task("mini_gsm")
EXAMPLES = TASK.examples("train", 2, 0, "easy")


class Ladder:
    """A session whose answers are right as a table says: one row of outcomes for every time a group is sampled."""

    def __init__(self, outcomes, group_size=8):
        self.outcomes = {i: list(rows) for i, rows in enumerate(outcomes)}
        self.group_size = group_size
        self.examples = [EXAMPLES[i] for i in range(len(outcomes)) for _ in range(group_size)]
        self.prompts = [example.prompt for example in self.examples]
        self.run = SimpleNamespace(task=TASK)
        self.asked = []

    def complete(self, prompts, examples):
        self.asked.append([prompt[-1].content for prompt in prompts])
        made = []
        for start in range(0, len(prompts), self.group_size):
            group = EXAMPLES.index(examples[start])
            made += [Completion([], text="right" if right else "wrong") for right in self.outcomes[group].pop(0)]
        return made

    def right(self, examples, completions):
        return [one.text == "right" for one in completions]


def test_the_gate_of_the_card():
    assert [compute_gate_probability(p, 8) for p in (0.05, 0.3, 0.5, 0.95, 0.01)] == pytest.approx([0.3366, 0.9423, 0.9922, 0.3366, 0.0773], abs=1e-4)


def test_the_ladder_of_the_card_stops_at_the_first_level_with_a_success():
    session = Ladder([[[0] * 8, [0] * 8, [0, 1] + [0] * 6]])
    made = SAGE(Config()).rollout(session)
    assert [one.notes["level"] for one in made] == [2] * 8
    assert len(session.asked) == 3
    assert session.prompts[0][-1].content == session.asked[2][0]
    assert " Hint: " not in session.asked[0][0]


def test_only_the_failed_group_is_asked_again_and_stays_failed_after_the_last_level():
    session = Ladder([[[1] * 8], [[0] * 8] * 4])
    made = SAGE(Config()).rollout(session)
    assert [one.text for one in made] == ["right"] * 8 + ["wrong"] * 8
    assert [len(asked) for asked in session.asked] == [16, 8, 8, 8]
    assert [len(asked[0]) for asked in session.asked[1:]] == sorted(len(asked[0]) for asked in session.asked[1:])
    assert session.prompts[0] == EXAMPLES[0].prompt


def test_with_a_right_answer_in_every_group_it_is_the_plain_run():
    session = Ladder([[[0] * 7 + [1]], [[1] * 8]])
    made = SAGE(Config()).rollout(session)
    assert {one.notes["level"] for one in made} == {0}
    assert session.prompts == [example.prompt for example in session.examples]


def test_hints_grow_piece_by_piece():
    assert [hint_of("3+3=6 6+5=11 11-1=10", "10", level, 5) for level in range(1, 6)] == [
        "3+3",
        "3+3=6",
        "3+3=6 6+5",
        "3+3=6 6+5=11",
        "3+3=6 6+5=11 11-1",
    ]
    assert hint_of("Tue+2=Thu Thu+1=Fri", "Friday", 3, 3) == "Tue+2=Thu Thu+1"
    assert hint_of("", "1", 3, 3) == ""
    assert hint_of("15-1=14 14+1=15", "15", 3, 3) == "15-1=14 14+1"


@given(st.integers(0, 300), st.integers(1, 9), st.integers(1, 9), st.sampled_from(["easy", "medium", "hard"]))
def test_a_hint_never_tells_the_answer(seed, level, levels, difficulty):
    (example,) = TASK.examples("train", 1, seed, difficulty)
    hint = hint_of(working_of(TASK, example), example.reference, min(level, levels), levels)
    assert not any(part.endswith(f"={example.reference}") for part in hint.split())


@given(st.floats(0, 1), st.integers(0, 3))
def test_a_level_moves_by_one_at_most_and_stays_in_range(accuracy, level):
    moved = next_level(level, accuracy, 0.1, 0.35, 3)
    assert 0 <= moved <= 3
    assert abs(moved - level) <= 1
    assert (moved > level) <= (accuracy <= 0.1)


def light_batch(method, rewards):
    method.observe(rollout_batch(rewards, 2, examples=[EXAMPLES[0]] * 2))


def test_light_climbs_with_failures_descends_with_successes_and_survives_a_checkpoint():
    method = SAGE(Config(variant="light"))
    light_batch(method, [0, 0])
    light_batch(method, [0, 0])
    assert method.reached == {make_example_key(EXAMPLES[0]): 2}
    resumed = SAGE(Config(variant="light"))
    resumed.restore(method.state())
    session = Ladder([[[0] * 8]])
    assert {one.notes["level"] for one in resumed.rollout(session)} == {2}
    assert len(session.asked) == 1
    light_batch(resumed, [1, 1])
    assert resumed.reached == {make_example_key(EXAMPLES[0]): 1}


def test_the_policys_own_hint_is_used_unless_it_names_the_answer():
    class Writing(Ladder):
        def complete(self, prompts, examples):
            if prompts[0][-1].content.endswith("without the answer."):
                return [Completion([], text=self.says) for _ in prompts]
            return super().complete(prompts, examples)

    for says, used in (("add them up", "add them up"), (f"it is {EXAMPLES[0].reference}", "")):
        session = Writing([[[0] * 8, [1] * 8]])
        session.says = says
        made = SAGE(Config(writer="policy", levels=1)).rollout(session)
        assert made[0].notes["hint"] == (used or hint_of(working_of(TASK, EXAMPLES[0]), EXAMPLES[0].reference, 1, 1))


def test_groups_say_what_helped_them():
    method = SAGE(Config())
    notes = [{"level": 0}] * 4 + [{"level": 2}] * 4
    method.observe(rollout_batch([1, 0, 1, 1, 0, 0, 0, 0], 4, notes=notes, mask=torch.zeros(8, 1)))
    logged = method.collect()
    assert (logged["gate_open"], logged["level/2"], logged["accuracy_plain"], logged["accuracy_hinted"]) == (0.5, 0.5, 0.75, 0.0)


def test_a_hint_goes_to_the_end_of_the_question():
    prompt = [Message("system", "s"), Message("user", "3+4?")]
    assert with_hint(prompt, "count") == [prompt[0], Message("user", "3+4? Hint: count")]
    assert with_hint(prompt, "") == prompt


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("sage", base="grpo", policy={"kind": "tiny", "cold_start": False})  # right nowhere, so that hints are needed
    hinted = [rollout for rollout in trained.rollouts if " Hint: " in rollout.prompt[-1].content]
    shares = [sum(step[f"sage/level/{level}"] for level in (1, 2, 3)) for step in trained.steps]
    assert sum(shares) / 2 == pytest.approx(len(hinted) / len(trained.rollouts))
    assert hinted
    for step, group in {(rollout.step, rollout.group) for rollout in trained.rollouts}:
        prompts = {r.prompt[-1].content for r in trained.rollouts if (r.step, r.group) == (step, group)}
        assert len(prompts) == 1
