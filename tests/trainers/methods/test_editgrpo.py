"""EditGRPO on text: which edit applies, what it makes of a working, and members that are trained on with the policy's own log-probabilities."""

import random
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from tests.trainers.methods.stacks import small_run
from trainers.contract.events import Message
from trainers.contract.problems import SpecError
from trainers.maths.advantages import centre_by_group
from trainers.methods.group.editgrpo import Config, EditGRPO, compare_entities, draw_pairs, edit_text, find_wrong_lines
from trainers.methods.group_rows import list_group_rows
from trainers.methods.session import Session
from trainers.policies.sampling import Completion
from trainers.texts.segments import step_texts
from trainers.worlds.rooms import Rooms

GOLD = ["3+3=6", "6+5=11"]
LINES = st.lists(st.sampled_from([*GOLD, "3+4=7", "9-1=8", "6+5=12"]), max_size=4)


def write(lines, answer="11"):
    return f"<think>{' '.join(lines)}</think><answer>{answer}</answer>"


def edited(lines, threshold=0.6, seed=0):
    edit = edit_text(write(lines), GOLD, threshold, random.Random(seed))
    return edit and (edit.kind, edit.text)


def test_the_worked_example():
    rewards = torch.tensor([1.0, 1.4, 0.9, 1.2, 1.5])
    assert centre_by_group(rewards, 5).tolist() == pytest.approx([-0.2, 0.2, -0.3, 0, 0.3], abs=1e-6)
    pairs = draw_pairs(range(5), 0.5, random.Random(0))
    assert len(pairs) == 2
    assert len({row for pair in pairs for row in pair}) == 4
    assert compare_entities("6+5=12", "6+5=11") == pytest.approx(2 / 3)
    assert compare_entities("=", "6+5=11") == 0


def test_the_first_kind_that_applies_is_taken():
    assert edited(["3+3=6", "6+5=12"]) == ("replace", write(GOLD))
    assert edited(["3+3=6", "6+5=12"], threshold=0.7) == ("delete", write(GOLD[:1]))
    assert edited([*GOLD, "9-1=8"]) == ("delete", write(GOLD))  # nothing is missing that could take its place
    assert edited(["9-1=8", *GOLD]) == ("delete", write(GOLD))
    assert edited(GOLD[:1]) == ("add", write(GOLD))
    assert edited(GOLD[1:]) == ("add", write(GOLD))  # where the reference has it
    assert {edited([], seed=seed) for seed in range(9)} == {("add", write([line])) for line in GOLD}
    assert edited(GOLD) is None
    assert edit_text("<answer>11</answer>", GOLD, 0.6, random.Random(0)) is None  # no working to add a line to
    assert edit_text("a\nb\nd", ["a", "b", "c", "d"], 0.6, random.Random(0)) is None


def test_lines_of_their_own_stay_lines():
    text = "<think>a one\nb two\nd four</think>"
    assert edit_text(text, ["a one", "b two", "c three", "d four"], 0.6, random.Random(0)).text == "<think>a one\nb two\nc three\nd four</think>"


@given(LINES, st.floats(0, 1), st.integers(0, 9))
def test_an_edit_is_one_line_nearer_to_the_reference_or_there_is_none(lines, threshold, seed):
    def faults(some):
        return len(find_wrong_lines(some, GOLD)) + len(find_wrong_lines(GOLD, some))

    edit = edit_text(write(lines), GOLD, threshold, random.Random(seed))
    assert (edit is None) == (faults(lines) == 0)
    if edit is not None:
        assert faults(lines) - faults(step_texts(edit.text)) == (2 if edit.kind == "replace" else 1)
        assert edit.text.endswith("<answer>11</answer>")


@given(st.text(alphabet="<>/think answer0123456789+=\n ", max_size=60), st.integers(0, 9))
@settings(deadline=None)
def test_no_text_is_too_strange_to_edit(text, seed):
    edit = edit_text(text, GOLD, 0.6, random.Random(seed))
    assert edit is None or edit.text != text


@given(st.integers(0, 9), st.floats(0, 0.5), st.integers(0, 99))
def test_sources_and_replaced_members_never_meet(count, share, seed):
    pairs = draw_pairs(range(count), share, random.Random(seed))
    rows = [row for pair in pairs for row in pair]
    assert len(rows) == len(set(rows))
    assert len(pairs) == int(share * count)


@given(st.integers(1, 30), st.integers(0, 30), st.integers(1, 8))
def test_groups_hold_every_row_once_wherever_a_process_begins(rows, first, size):
    groups = list_group_rows(rows, first, size)
    assert [row for group in groups.values() for row in group] == list(range(rows))
    assert all((first + row) // size == number for number, group in groups.items() for row in group)


def make_session(monkeypatch, texts):
    """Four members of one prompt that have written ``texts``."""
    run = small_run()
    example = run.examples[0]
    monkeypatch.setattr(run.attempt, "sampling_batch", 8)

    def complete(self):
        made = []
        for text in texts:
            ids = run.completion_ids(text)
            made.append(Completion(run.prompt_ids([example.prompt])[0], ids, [1] * len(ids), text=text, logprobs=[-1.0] * len(ids)))
        return made

    monkeypatch.setattr(Session, "complete", complete)
    return Session(run, run.model, [example] * 4, [list(example.prompt)] * 4, 4, 1, 10, 1.0, 64, random.Random(0))


def test_half_of_a_group_is_replaced_by_edited_texts_of_the_others(monkeypatch):
    run = small_run()
    gold = run.task.gold(run.examples[0])
    steps = step_texts(gold)
    text = gold.replace(f" {steps[-1]}", "")
    method = EditGRPO()
    method.prepare(run)
    session = make_session(monkeypatch, [text] * 4)
    made = method.rollout(session)
    rows = [row for row, one in enumerate(made) if one.notes.get("edit") == "add"]
    assert len(rows) == 2
    for row in rows:
        assert made[row].text == gold
        assert made[row].ids == run.completion_ids(gold)
        assert made[row].mask == [1] * len(made[row].ids)
        scored, _ = run.logprobs([made[row].prompt_ids], [made[row].ids])
        assert made[row].logprobs == pytest.approx(scored[0].tolist(), abs=1e-4)
    assert [one.text for row, one in enumerate(made) if row not in rows] == [text] * 2
    assert method.collect() == pytest.approx(
        {"generated": sum(len(run.completion_ids(text)) for _ in range(4)), "kind/add": 0.5, "kind/delete": 0, "kind/replace": 0}
    )


@pytest.mark.parametrize("config", [{}, {"share": 0.0}])
def test_where_no_edit_applies_it_is_its_parent(monkeypatch, config):
    run = small_run()
    gold = run.task.gold(run.examples[0])
    method = EditGRPO(Config(**config))
    method.prepare(run)
    texts = [gold if not config else "<think></think><answer>1</answer>"] * 4
    session = make_session(monkeypatch, texts)
    assert method.rollout(session) == session.complete()


def test_a_text_is_not_put_under_another_prompt(monkeypatch):
    run = small_run()
    gold = run.task.gold(run.examples[0])
    method = EditGRPO()
    method.prepare(run)
    session = make_session(monkeypatch, [gold.replace(f" {step_texts(gold)[-1]}", "")] * 4)
    session.prompts = [[Message("user", str(row))] for row in range(4)]
    assert method.rollout(session) == session.complete()


def test_rewards_of_edited_and_sampled_members_are_told_apart():
    method = EditGRPO()
    method.observe(rollout_batch([1.0, 0.0, 0.5, 0.5], 4, notes=[{"edit": "add"}, {}, {}, {}]))
    logged = method.collect()
    assert logged == pytest.approx(
        {"edited": 0.25, "reward_edited": 1.0, "above_mean_edited": 1.0, "reward_sampled": 1 / 3, "above_mean_sampled": 0.0}
    )


def test_a_task_of_several_turns_is_refused():
    with pytest.raises(SpecError, match="several turns"):
        EditGRPO().prepare(SimpleNamespace(task=Rooms()))


@pytest.mark.training
def test_two_real_steps(two_steps, monkeypatch):
    def complete(self):
        made = []
        for row, example in enumerate(self.examples):
            gold = self.run.task.gold(example)
            text = gold.replace(f"{step_texts(gold)[0]} ", "") if row % 4 else gold
            ids = self.run.completion_ids(text)
            prompt = self.run.prompt_ids([self.prompts[row]])[0]
            made.append(Completion(prompt, ids, [1] * len(ids), text=text, logprobs=[-1.0] * len(ids), entropies=[1.0] * len(ids)))
        return made

    monkeypatch.setattr(Session, "complete", complete)
    task = {"name": "mini_gsm", "rewards": {"working": 1.0}}
    trained = two_steps("editgrpo", base="dr-grpo", task=task, policy={"kind": "tiny", "cold_start": False})
    assert any(step["editgrpo/kind/add"] > 0 for step in trained.steps)
    for step in trained.steps:
        assert step["editgrpo/edited"] == pytest.approx(sum(step[f"editgrpo/kind/{kind}"] for kind in ("replace", "delete", "add")))
