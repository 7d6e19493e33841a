"""Socratic-Zero: the card's utilities and pairs, problems that the task can read, and plain supervised loss with a wide utility."""

import random
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.contract.events import Message
from trainers.contract.problems import SpecError
from trainers.methods.context import RunContext
from trainers.methods.pairs.socratic_zero import Config, SocraticZero, ask_for_problem, compute_utility, cross_answers, find_zone
from trainers.policies.sampling import as_rows
from trainers.tasks import registry
from trainers.texts.problems import can_read, change_one_step, list_totals, read_problem
from trainers.texts.stories import parse_story

TASK = registry.get_task("mini_gsm")
ROWS = [{"prompt": as_rows(example.prompt)} for example in TASK.examples("pairs", 3, 0, "easy")]
QUESTION = "Max has 3 apples, gets 3, buys 5, drops 1. How many?"
EXAMPLE = read_problem(TASK, QUESTION)


class Answering(RunContext):
    """Answers questions right where ``pattern`` says so, in turn; writes ``problems`` where a new one is asked for."""

    pattern = (True, False)
    problems = (QUESTION, "Nobody has anything.")

    def sample(self, examples, temperature=1.0, key="", model=None):
        writing = bool(examples) and len(examples[0].prompt) > 1
        texts = self.problems if writing else [TASK.gold(EXAMPLE) if fine else "<think></think><answer>no</answer>" for fine in self.pattern]
        made = [texts[place % len(texts)] for place in range(len(examples))]
        right = [TASK.gold(example) if not writing and text != texts[-1] else text for example, text in zip(examples, made, strict=True)]
        return [SimpleNamespace(text=text) for text in right]

    def frozen(self, folder):
        return folder


def run(trainer="dpo", task=TASK, **training):
    known = {"sampled_prompts": 3} | training
    spec = SimpleNamespace(seed=0, dataset=None, training=SimpleNamespace(trainer=trainer, **known), task=SimpleNamespace(difficulty="easy"))
    return Answering(SimpleNamespace(spec=spec, task=task, training=spec.training, weights={"correct": 1.0}))


def test_the_worked_examples_of_the_card():
    assert [round(compute_utility(share, 0.5, 0.2), 4) for share in (0.5, 0.25, 0.75, 0, 1)] == [1, 0.4578, 0.4578, 0.0439, 0.0439]
    texts = [f"a{place}" for place in range(8)]
    assert len(cross_answers(texts, [True] * 3 + [False] * 5, "gold")) == 15
    assert cross_answers(texts, [False] * 8, "gold") == [("gold", text) for text in texts]
    assert cross_answers(texts, [True] * 8, "gold") == []


@given(st.lists(st.tuples(st.text(max_size=3), st.booleans()), max_size=9))
def test_every_right_answer_meets_every_wrong_one_that_says_something(answers):
    texts, right = [one for one, _ in answers], [fine for _, fine in answers]
    wrong = sum(bool(text) and not fine for text, fine in answers)
    assert len(cross_answers(texts, right, None)) == sum(right) * wrong
    assert len(cross_answers(texts, right, "gold")) == max(1, sum(right)) * wrong


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0.05, 10))
def test_utility_is_highest_at_mu_and_the_same_on_both_sides(success, mu, sigma):
    worth = compute_utility(success, mu, sigma)
    assert 0 <= worth <= compute_utility(mu, mu, sigma) == 1
    assert worth == pytest.approx(compute_utility(2 * mu - success, mu, sigma))


def test_zones():
    assert [find_zone(share) for share in (1, 0.5, 0)] == ["mastered", "learning", "too_hard"]


@given(st.integers(0, 10_000))
def test_the_teacher_changes_a_problem_into_another_that_the_task_reads(seed):
    rng = random.Random(seed)
    story = parse_story(TASK.example(rng, rng.choice(list(TASK.difficulties))).prompt[0].content)
    made = change_one_step(story, rng)
    assert abs(len(made.changes) - len(story.changes)) <= 1
    assert min(list_totals(made)) >= 0
    read = read_problem(TASK, str(made))
    assert read is None or read.reference == str(list_totals(made)[-1])
    assert TASK.rewards["correct"].function(TASK.gold(read), read) == 1 if read else len(made.changes) > 8 or max(list_totals(made)) > 999


@given(st.text(max_size=80))
def test_any_text_is_read_or_is_none(text):
    assert read_problem(TASK, text) is None
    assert read_problem(TASK, QUESTION + text) is None or not text
    assert can_read(TASK)
    assert not can_read(registry.get_task("kb"))


def test_pairs_of_questions_and_of_the_problems_written_from_them():
    method = SocraticZero(Config(samples=4, variations=1))
    rows = method.data(ROWS, run())
    assert [row["source"] for row in rows].count("question") == 3 * 2 * 2
    assert len(rows) > 12
    assert all(row["zone"] == "learning" for row in rows)
    assert method.collect()["question/learning"] == 1


def test_a_generators_problems_count_only_if_the_task_can_read_them():
    method = SocraticZero(Config(samples=2, variations=2, generator="somewhere"))
    rows = method.data(ROWS, run())
    assert sum(row["source"] == "fresh" for row in rows) == 3
    assert {row["prompt"][0]["content"] for row in rows if row["source"] == "fresh"} == {QUESTION}
    assert method.collect()["valid"] == 0.5


def test_without_variations_only_the_questions_are_paired():
    assert {row["source"] for row in SocraticZero(Config(samples=2, variations=0)).data(ROWS, run())} == {"question"}


def test_the_generator_learns_problems_from_answers_with_their_utility():
    method = SocraticZero(Config(samples=4, questions=5, variations=1))
    rows = method.data([], run("sft"))
    assert rows == SocraticZero(Config(samples=4, questions=5, variations=1)).data([], run("sft"))
    for row in rows:
        question, answer, request = row["prompt"]
        assert as_rows(ask_for_problem([Message("user", question["content"])], answer["content"]))[2] == request
        assert read_problem(TASK, row["completion"][0]["content"]) is not None
        assert row["utility"] == pytest.approx(compute_utility(row["success"], 0.5, 0.2))


def test_a_wide_utility_is_the_plain_supervised_loss():
    batch = SimpleNamespace(rows=[{"utility": compute_utility(share, 0.5, 1000)} for share in (0, 1)], mask=torch.ones(2, 3))
    assert torch.allclose(SocraticZero().sft_weights(batch), torch.ones(2, 3), atol=1e-6)
    assert SocraticZero().sft_weights(SimpleNamespace(rows=[{}], mask=torch.ones(1, 3))) is None


def test_a_task_that_reads_no_problems_is_refused():
    with pytest.raises(SpecError, match="cannot read problems"):
        SocraticZero().data([], run(task=registry.get_task("kb")))


@pytest.mark.training
def test_two_real_steps_of_the_solver(two_steps, written_samples):
    trained = two_steps("socratic-zero", {"samples": 2, "variations": 1}, trainer="dpo", training__sampled_prompts=24)
    first = trained.steps[0]
    assert first["socratic-zero/question/learning"] == 1
    assert first["socratic-zero/pairs"] >= 2  # of each prompt with a right and a wrong answer, and of what was written from it


@pytest.mark.training
def test_two_real_steps_of_the_generator(two_steps, written_samples):
    trained = two_steps("socratic-zero", {"samples": 2, "questions": 12}, trainer="sft")
    assert trained.steps[0]["socratic-zero/utility"] == 1  # one of two answers is right
    assert trained.steps[0]["socratic-zero/token_weight"] == pytest.approx(1)
