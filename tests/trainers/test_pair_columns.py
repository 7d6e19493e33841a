"""Weights and margins of a preference dataset: closed forms, and real runs in which a weight of 1 changes nothing."""

import json
import math

import pytest
import torch

from tests.trainers.conftest import events_in, make_spec
from tests.trainers.methods.batches import pair_batch
from tests.trainers.test_dataset_identity import rows_of, write
from trainers.adapters.dpo import average_token_ratios, method_loss
from trainers.attempt import train
from trainers.checks.preflight import run_preflight_checks
from trainers.contract.events import Metrics
from trainers.data.datasets import BrokenRow, row_of
from trainers.methods.bases.dpo import DPO
from trainers.methods.bases.ipo import IPO
from trainers.methods.pair_columns import Config
from trainers.methods.stack import Stack


def softplus(value):
    return math.log1p(math.exp(-value))


def batch(*rows, **more):
    """One token a side: the log-ratios of the pairs are 1 and -2, so the scores are 0.1 and -0.2 at beta 0.1."""
    return pair_batch(torch.tensor([[1.0], [-2.0]]), torch.zeros(2, 1), rows=list(rows), **more)


def loss_of(base, pairs, per_pair):
    return method_loss(Stack(base), pairs, lambda score: torch.stack([per_pair(value) for value in score])).item()


def sigmoid_loss(score):
    return torch.nn.functional.softplus(-score)


@pytest.mark.parametrize(
    ("rows", "use_margins", "expected"),
    [
        (({}, {}), True, (softplus(0.1) + softplus(-0.2)) / 2),
        (({"weight": 0.5}, {}), False, (0.5 * softplus(0.1) + softplus(-0.2)) / 2),
        (({"weight": 0.0}, {"weight": 3.0}), False, 3 * softplus(-0.2) / 2),
        (({"margin": 0.7}, {}), True, (softplus(0.1 - 0.7) + softplus(-0.2)) / 2),
        (({"margin": 0.7}, {}), False, (softplus(0.1) + softplus(-0.2)) / 2),
        (({"margin": -0.7, "weight": 2.0}, {"margin": 0.1}), True, (2 * softplus(0.1 + 0.7) + softplus(-0.2 - 0.1)) / 2),
    ],
)
def test_the_loss_of_dpo(rows, use_margins, expected):
    assert loss_of(DPO(Config(use_margins=use_margins)), batch(*rows), sigmoid_loss) == pytest.approx(expected, rel=1e-6)


def test_the_loss_of_ipo():
    """Its score is the difference of the mean log-ratios, and so is its margin."""
    pairs = batch({"weight": 0.25, "margin": 0.5}, {}, reduce=average_token_ratios)
    found = loss_of(IPO(Config(use_margins=True)), pairs, lambda score: (score - 1.0) ** 2)
    assert found == pytest.approx((0.25 * (1.0 - 0.5 - 1.0) ** 2 + (-2.0 - 1.0) ** 2) / 2, rel=1e-6)


@pytest.mark.parametrize(
    ("column", "value"), [("weight", -0.1), ("weight", float("nan")), ("weight", "2"), ("weight", True), ("margin", float("inf")), ("margin", [])]
)
def test_a_number_that_is_none_breaks_the_row(column, value):
    with pytest.raises(BrokenRow, match=column):
        row_of(rows_of(1)[0] | {column: value}, "dpo")


def preflight_of(tmp_path, trainer, rows, **more):
    write(tmp_path / "train.jsonl", rows)
    return run_preflight_checks(make_spec(tmp_path / "run", trainer, dataset={"path": str(tmp_path / "train.jsonl")}, **more))


def test_the_preflight_says_what_becomes_of_the_columns(tmp_path):
    rows = rows_of()
    assert not preflight_of(tmp_path, "dpo", rows).warnings
    (ignored,) = [warning for warning in preflight_of(tmp_path, "reward", rows).warnings if warning.field == "dataset.path"]
    assert "weight, which reward does not read" in ignored.message
    (refused,) = preflight_of(tmp_path, "dpo", [row | {"weight": 0} for row in rows]).problems
    assert "every pair has weight 0" in refused.message
    report = preflight_of(tmp_path, "dpo", rows, base={"name": "dpo", "config": {"use_margins": True}})
    assert report.ok
    assert [warning.field for warning in report.warnings] == ["base.config.use_margins"]


def steps_of(tmp_path, name, rows, **config):
    folder = tmp_path / name
    folder.mkdir()
    write(folder / "train.jsonl", rows)
    more = {"base": {"name": "dpo", "config": config}, "dataset": {"path": str(folder / "train.jsonl")}}
    spec = make_spec(folder, "dpo", training__max_steps=2, training__learning_rate=1e-3, **more)
    assert train.run_training(spec, folder) == train.FINISHED
    return [event.values for event in events_in(folder) if isinstance(event, Metrics) and "loss" in event.values]


@pytest.mark.training
def test_real_runs(tmp_path):
    """Without the columns TRL says the loss; a weight of 1 changes nothing, one of 1/2 halves it, and a margin of 3 is in it from the first step."""
    plain = [{name: value for name, value in row.items() if name != "weight"} for row in rows_of()]
    trl = steps_of(tmp_path, "plain", plain)
    assert "dpo/weight" not in trl[0]
    ones = steps_of(tmp_path, "ones", [row | {"weight": 1} for row in plain])
    assert [step["loss"] for step in ones] == pytest.approx([step["loss"] for step in trl], abs=1e-6)
    assert ones[0]["dpo/weight"] == 1.0
    assert steps_of(tmp_path, "half", [row | {"weight": 0.5} for row in plain])[0]["loss"] == pytest.approx(trl[0]["loss"] / 2, abs=1e-6)
    apart = steps_of(tmp_path, "apart", [row | {"margin": 3.0} for row in plain], use_margins=True)
    assert apart[0]["loss"] == pytest.approx(softplus(-3.0), abs=1e-5)  # before the first update the policy is the reference: the score is 0
    assert json.dumps(apart[0]["dpo/margin"]) == "3.0"
