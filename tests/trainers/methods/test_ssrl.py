"""SSRL: the graded form, what is left out of the loss, and the right answer alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.conftest import make_spec
from tests.trainers.methods.batches import rollout_batch
from trainers.catalog.entries import entries_for
from trainers.contract import stacking
from trainers.contract.arrays import unpack_array
from trainers.contract.spec import SpecError, TaskChoice
from trainers.methods.worlds.ssrl import SSRL, Config, grade_form, mix_form
from trainers.tasks.base import Example
from trainers.tasks.registry import load_chosen_task
from trainers.worlds.search import Search
from trainers.worlds.self_search import find_information, list_told_evidence, read_last_answer, split_blocks

FACTS = [["Eva", "friend", "Leo"], ["Leo", "city", "Rome"], ["Eva", "city", "Oslo"]]
EXAMPLE = Example([], "Rome", {"facts": FACTS, "evidence": [0, 1], "person": "Eva", "attribute": "city"})
OPTIONS = {"alone": True, "thoughts": True, "memorised": 1.0, "hits": 1}
WORLD = Search(OPTIONS)
GOOD = WORLD.gold(EXAMPLE)
PIECES = [*(f"<{slash}{name}>" for name in ("think", "search", "information", "answer") for slash in ("", "/")), "Rome", "\n", " ", "\ud800"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


def write_blocks(names):
    return "".join(f"<{name}>x</{name}>" for name in names.split())


def make_batch(texts):
    width = max(map(len, texts))
    return rollout_batch([0.0] * len(texts), len(texts), texts=texts, mask=torch.ones(len(texts), width), examples=[EXAMPLE] * len(texts))


def test_the_worked_examples():
    form = grade_form(split_blocks(write_blocks("think search information answer")))
    assert (form, mix_form(False, form, 0.1)) == (0.25, pytest.approx(0.025))
    form = grade_form(split_blocks(write_blocks("think search information think answer")))
    assert (form, mix_form(True, form, 0.1)) == (1.0, pytest.approx(1.0))


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (write_blocks("think answer"), 0.5),
        (write_blocks("think think answer"), 0.5),
        (write_blocks("think search information think search information think answer"), 1.0),
        (write_blocks(" ".join(["think"] * 9 + ["answer"])), 0.0),
        (write_blocks("search information think answer"), 0.0),
        (write_blocks("think search think information answer"), 0.0),
        (write_blocks("think information answer"), 0.0),
        (write_blocks("think search information think"), 0.0),
        (write_blocks("think answer") + " done", 0.0),
        ("<think></think><answer>x</answer>", 0.0),
        ("<think>x</think><search>x\ny</search><information>x</information><answer>x</answer>", 0.0),
        ("<think>x</think> <note>x</note><answer>x</answer>", 0.0),
        ("<think>x</think>\n<answer> x </answer>\n", 0.5),
        ("", 0.0),
    ],
)
def test_the_form_is_graded(text, form):
    assert grade_form(split_blocks(text)) == form


@given(TEXTS)
def test_any_text_has_a_form_between_0_and_1_and_a_row_of_blocks_stays_one(text):
    blocks = split_blocks(text)
    assert 0 <= grade_form(blocks) <= 1
    assert len(split_blocks(text * 3) or []) == 3 * len(blocks or [])
    if blocks is not None:
        assert split_blocks("\n".join(f"<{name}> {inside} </{name}>" for name, inside in blocks)) == blocks


@given(TEXTS)
def test_exactly_what_is_written_as_results_is_left_out(text):
    batch = make_batch([text or "x", GOOD])  # a token is a character
    answer = SSRL().advantages(batch, torch.ones(2))
    for row, said in enumerate(batch.texts):
        left = [any(start <= place < end for start, end in find_information(said)) for place in range(len(said))]
        assert answer[row, : len(said)].tolist() == [float(not one) for one in left]
    assert find_information(GOOD)


def test_without_the_mask_and_the_form_it_is_grpo_on_the_answer():
    batch = make_batch([GOOD, GOOD.replace("<answer>Rome", "<answer>Oslo"), "<answer>Rome</answer>", "Rome"])
    plain = SSRL(Config(form=0.0, mask=False))
    assert plain.rewards(batch, batch.reward).tolist() == [1, 0, 1, 0]
    assert plain.advantages(batch, torch.ones(4)).tolist() == [1.0] * 4
    method = SSRL()
    assert method.rewards(batch, batch.reward).tolist() == pytest.approx([1.0, 0.1, 0.9, 0.0])
    assert method.collect()["form"] == 0.5


def test_the_world_alone_is_one_turn_whose_results_the_policy_writes():
    assert WORLD.stop == ()
    assert [block[0] for block in split_blocks(GOOD)] == ["think", "search", "information"] * 2 + ["think", "answer"]
    assert [reward.function(GOOD, EXAMPLE) for reward in WORLD.rewards.values()] == [1, 1, 1, 1]
    made_up = GOOD.replace("Leo's city is Rome", "Leo's city is Lima")
    assert [reward.function(made_up, EXAMPLE) for reward in WORLD.rewards.values()] == [1, 1, 0.5, 0.5]
    assert [reward.function("well <answer>Rome</answer>", EXAMPLE) for reward in WORLD.rewards.values()] == [1, 0, 0, 0]
    assert Search({**OPTIONS, "alone": False}).gold(EXAMPLE) == GOOD
    assert list_told_evidence([("information", "Leo's city is Rome. Leo's city is Rome.")] * 2, [], []) == [[], []]
    assert read_last_answer("<answer>a</answer><answer>b</answer>") == "b"
    assert read_last_answer("<answer>a") is None


@pytest.mark.parametrize("options", [{}, {"alone": True}, {"alone": True, "thoughts": True}])
def test_it_needs_a_world_without_an_engine(tmp_path, options):
    spec = make_spec(tmp_path, task={"name": "search", "options": options}, methods=[{"name": "ssrl"}])
    report = stacking.check_stack(spec, entries_for(spec))
    missing = {f"task.options.{name}" for name in ("alone", "thoughts") if not options.get(name)}
    assert {problem.field for problem in report.problems} == missing
    assert "task.options.memorised" in [problem.field for problem in report.warnings]


@pytest.mark.parametrize(("world", "options"), [("search", {"junk": 0.1}), ("search", {"reader": True}), ("judged_search", {})])
def test_what_an_engine_does_goes_not_with_none(world, options):
    with pytest.raises(SpecError) as refused:
        load_chosen_task(TaskChoice(name=world, options={"alone": True, **options}))
    assert [problem.field for problem in refused.value.problems] == ["task.options.alone"]


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    trained = two_steps("ssrl", base="grpo", task__name="search", task__options=OPTIONS, **written_episodes)
    assert all(0 < step["ssrl/left_out"] < 1 for step in trained.steps)
    for rollout in trained.rollouts:
        assert rollout.shaped["ssrl"] >= 0.9 * rollout.rewards["correct"] - 1e-6
        if find_information(rollout.completion):
            values = unpack_array(rollout.token_advantages).tolist()
            assert (min(map(abs, values)), max(map(abs, values)) > 0) == (0.0, rollout.advantage != 0)
