"""MedCritical: the card's loss, pairs that leave out what failed, and demonstrations that show corrections."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import logsigmoid

from tests.trainers.methods.batches import pair_batch
from trainers.adapters.dpo import method_loss
from trainers.contract.events import Message
from trainers.contract.problems import SpecError
from trainers.methods.bases.dpo import DPO
from trainers.methods.context import RunContext
from trainers.methods.pairs.medcritical import REQUEST, Config, MedCritical, ask_for_correction, pair_corrections
from trainers.methods.stack import Stack
from trainers.tasks import registry
from trainers.tasks.base import Example

TASK = registry.get_task("mini_gsm")
QUESTION = Example([Message("user", "Max has 3 apples, gets 3. How many?")], "6", {"start": 3, "changes": [3]})


def run(trainer="sft", dataset=None, task=TASK, **training):
    spec = SimpleNamespace(seed=0, dataset=dataset, training=SimpleNamespace(trainer=trainer, **training), task=SimpleNamespace(difficulty="easy"))
    return RunContext(SimpleNamespace(spec=spec, task=task, training=spec.training, weights={"correct": 1.0}))


class Answering(RunContext):
    """Answers in order what ``texts`` says, and keeps what it was asked."""

    def sample(self, examples, temperature=1.0, key="", model=None):
        self.asked = [*getattr(self, "asked", []), *examples]
        return [SimpleNamespace(text=self.texts.pop(0)) for _ in examples]


def answer(value):
    return f"<think></think><answer>{value}</answer>"


def test_the_worked_example_of_the_card():
    batch = pair_batch(torch.tensor([[1.0]]), torch.tensor([[-1.0]]), beta=0.3)
    assert method_loss(Stack(DPO(), [MedCritical()]), batch, lambda margin: -logsigmoid(margin)).item() == pytest.approx(0.4375, abs=1e-4)


def test_only_wrong_answers_are_corrected_and_only_right_corrections_are_trained_on():
    context = Answering(run("dpo").attempt)
    context.texts = [answer(6), answer(5), answer(4), "", answer(6), answer(7)]  # four first answers, two corrections
    method = MedCritical()
    (row,) = method.correct_answers([QUESTION] * 4, context)
    assert (row["chosen"][0]["content"], row["rejected"][0]["content"]) == (answer(6), answer(5))
    assert row["prompt"] == [{"role": "user", "content": QUESTION.prompt[0].content}]
    assert [message.content for message in context.asked[4].prompt] == [QUESTION.prompt[0].content, answer(5), REQUEST]
    assert method.collect() == {"first_wrong": 0.5, "corrected": 0.5, "repeated": 0.0, "pairs": 1.0}


def test_rows_of_a_dataset_are_answered_anew_and_judged_by_their_chosen_result():
    context = Answering(run("dpo", dataset="pairs.jsonl").attempt)
    context.texts = [answer(5), answer(6)]
    rows = [{"prompt": [{"role": "user", "content": "How many?"}], "chosen": [{"content": answer(6)}], "rejected": [{"content": "no"}]}]
    (row,) = MedCritical().data(rows, context)
    assert (row["chosen"][0]["content"], row["rejected"][0]["content"]) == (answer(6), answer(5))


@given(st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5), st.booleans()), max_size=6))
def test_a_pair_for_every_correction_that_is_right(made):
    firsts, seconds, right = ([one[place] for one in made] for place in range(3))
    rows = pair_corrections([QUESTION] * len(made), firsts, seconds, right)
    assert [(row["rejected"][0]["content"], row["chosen"][0]["content"]) for row in rows] == [one[:2] for one in made if one[2]]


def test_demonstrations_show_corrections_of_wrong_answers_to_the_rows_own_question():
    examples = TASK.examples("train", 40, 0, "easy")
    rows = [{"prompt": [{"role": "user", "content": example.prompt[0].content}], "completion": []} for example in examples]
    made = MedCritical(Config(share=0.5)).data(rows, run())
    changed = [place for place, row in enumerate(made) if row is not rows[place]]
    assert len(changed) == 20
    for place in changed:
        question, first, request = made[place]["prompt"]
        assert (question["content"], request["content"]) == (examples[place].prompt[0].content, REQUEST)
        assert TASK.rewards["correct"].function(first["content"], examples[place]) == 0
    right = [TASK.rewards["correct"].function(made[place]["completion"][0]["content"], examples[place]) for place in changed]
    assert 0.5 < sum(right) / len(right) < 1  # most corrections succeed, some do not
    assert made == MedCritical(Config(share=0.5)).data(rows, run())  # a resumed run trains on the same rows


def test_without_a_share_the_demonstrations_are_those_of_the_trainer():
    rows = [{"prompt": [], "completion": []}]
    assert MedCritical(Config(share=0)).data(rows, run()) is rows
    assert MedCritical().data(rows, run(dataset="rows.jsonl")) is rows


def test_demonstrations_of_several_turns_are_refused():
    with pytest.raises(SpecError, match="several turns"):
        MedCritical().data([{}], run(task=registry.get_task("kb")))


def test_what_came_between_is_in_the_request_only():
    assert ask_for_correction(QUESTION.prompt, "x")[:1] == QUESTION.prompt


@pytest.mark.training
def test_two_real_steps(two_steps, written_samples):
    trained = two_steps("medcritical", trainer="dpo", training__sampled_prompts=48)
    first = trained.steps[0]
    assert 0 < first["medcritical/first_wrong"] < 1
    assert first["medcritical/pairs"] > 0


@pytest.mark.training
def test_two_real_steps_of_stage_1(two_steps):
    trained = two_steps("medcritical", trainer="sft", policy={"kind": "tiny", "cold_start": False})
    assert trained.steps[0]["loss"] > 0
