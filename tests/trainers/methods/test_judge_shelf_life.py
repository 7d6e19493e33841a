"""Judges for old and new generators: how the data is laid out, whose answers a row is about, and real steps of both trainers."""

import json
import random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.contract.events import Metrics
from trainers.contract.problems import SpecError
from trainers.methods.pairs.judge_shelf_life import Config, JudgeShelfLife, count_weak_steps, find_prompt_tiers, repeat_shuffled
from trainers.policies.sampling import as_rows
from trainers.worlds.verdicts import Verdicts

WEAK, STRONG = [{"tier": "weak", "row": row} for row in range(3)], [{"tier": "strong", "row": row} for row in range(5)]
UNTRAINED = {"task__name": "verdicts", "policy": {"kind": "tiny", "cold_start": False}}


def make_run(trainer="sft", generator="continual", **training):
    numbers = {"max_steps": 4, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 1, "demonstrations": 40, **training}
    spec = SimpleNamespace(seed=1, task=SimpleNamespace(difficulty="easy"), training=SimpleNamespace(trainer=trainer))
    world = Verdicts({"generator": generator}, 1)
    run = SimpleNamespace(task=world, attempt=SimpleNamespace(spec=spec), training=SimpleNamespace(**numbers))
    return SimpleNamespace(**vars(run), rng=lambda *key: random.Random("/".join(map(str, key))))


def lay_out(rows, share=0.5, **more):
    method = JudgeShelfLife(Config(share=share))
    return method.data(rows, make_run(**more)), method.collect()


def test_the_weak_generators_pairs_come_first_for_their_share_of_the_steps():
    made, logged = lay_out([*STRONG, *WEAK], 0.25)
    assert [row["tier"] for row in made] == ["weak"] * 4 + ["strong"] * 12
    assert (logged["data_weak_steps"], logged["data_weak_rows"], logged["data_strong_rows"]) == (1, 3, 5)


@pytest.mark.parametrize(("rows", "tier"), [(WEAK, "weak"), (STRONG, "strong")])
def test_with_one_generator_every_step_is_on_it(rows, tier):
    made, _ = lay_out(rows)
    assert {row["tier"] for row in made} == {tier}
    assert len(made) == 16
    assert count_weak_steps(10, 0.3, {"weak": WEAK, "strong": STRONG}) == 3


@given(st.integers(1, 6), st.integers(0, 20), st.integers(0, 5))
def test_rows_are_repeated_evenly(size, count, seed):
    made = [row["row"] for row in repeat_shuffled([{"row": row} for row in range(size)], count, random.Random(seed))]
    assert len(made) == count
    counts = [made.count(row) for row in range(size)]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("trainer", ["sft", "dpo"])
def test_the_worlds_own_pairs_know_whose_answers_they_are_about(trainer):
    run = make_run(trainer, sampled_prompts=40)
    examples = run.task.examples("train" if trainer == "sft" else "pairs", 40, 1, "easy")
    rows = [{"prompt": as_rows(example.prompt), "place": place} for place, example in enumerate(examples)]
    tiers = JudgeShelfLife().sort_by_tier(rows[::2], run)  # what was dropped on the way does not matter
    assert [len(tiers[tier]) for tier in ("weak", "strong")] == [10, 10]
    assert max(row["place"] for row in tiers["weak"]) < 20 <= min(row["place"] for row in tiers["strong"])
    assert set(find_prompt_tiers(run, 4).values()) == {"weak", "strong"}


def test_a_row_that_says_nothing_is_refused():
    with pytest.raises(SpecError, match="which generator wrote its answers"):
        lay_out([{"prompt": [{"role": "user", "content": "1+1?"}]}])
    with pytest.raises(SpecError, match="which generator"):
        lay_out([*WEAK, {"tier": "medium"}])


@pytest.mark.training
def test_two_supervised_steps_in_order_and_what_is_measured_of_pairs(two_steps):
    small = {"training__demonstrations": 32, "training__max_length": 128, "evaluation__prompts": 4}
    trained = two_steps("judge-shelf-life", trainer="sft", task__options={"generator": "continual"}, **small, **UNTRAINED)
    assert trained.steps[0]["judge-shelf-life/data_weak_steps"] == 1
    assert trained.steps[0]["judge-shelf-life/data_strong_rows"] == 16
    measured = [event.values for event in trained.events if isinstance(event, Metrics) and "heldout/consistent" in event.values]
    assert len(measured) == 2  # before training and after it
    assert measured[0]["heldout/consistent"] == 0  # random weights say nothing in the right form


@pytest.mark.training
def test_two_steps_of_dpo_on_rows_of_a_file(two_steps, tmp_path):
    def write_row(example):
        said = {
            side: [{"role": "assistant", "content": f"<answer>{place}</answer>"}]
            for side, place in (("chosen", example.reference), ("rejected", "B" if example.reference == "A" else "A"))
        }
        return json.dumps({"prompt": as_rows(example.prompt), **said, "tier": example.data["tier"]})

    file = tmp_path / "judged.jsonl"
    file.write_text("\n".join(map(write_row, Verdicts().examples("pairs", 24, 0, "easy"))))
    trained = two_steps("judge-shelf-life", trainer="dpo", dataset={"path": str(file)}, training__max_length=160, **UNTRAINED)
    assert trained.steps[0]["judge-shelf-life/data_weak_rows"] + trained.steps[0]["judge-shelf-life/data_strong_rows"] == 24
