"""ORPO, CPO and SimPO: their losses are those of the papers, worked out by hand, and what they cannot read is refused."""

import json
import math
from types import SimpleNamespace

import pytest
import torch
from trl.experimental.cpo import CPOTrainer
from trl.experimental.orpo import ORPOTrainer

from tests.trainers.conftest import make_spec
from trainers.adapters.reference_free import compute_mean_entropy
from trainers.catalog.entries import entries_for
from trainers.checks.preflight import run_preflight_checks
from trainers.contract import stacking
from trainers.methods.bases.cpo import CPO
from trainers.methods.bases.simpo import SimPO

ON_CPU = SimpleNamespace(device=torch.device("cpu"))


def log_sigmoid(value: float) -> float:
    return -math.log1p(math.exp(-value))


def cpo_loss(base, chosen: float, rejected: float, beta: float) -> float:
    """TRL's, set up with what a base says."""
    told = base.arguments()
    trainer = SimpleNamespace(
        alpha=0.0,
        accelerator=ON_CPU,
        beta=beta,
        loss_type=told["loss_type"],
        label_smoothing=told.get("label_smoothing", 0.0),
        simpo_gamma=told.get("simpo_gamma"),
    )
    return CPOTrainer.cpo_loss(trainer, torch.tensor([chosen]), torch.tensor([rejected]))[0].item()


def test_orpo_weighs_the_log_odds_of_both_answers():
    """Mean probabilities of 1/2 and 1/4 a token: odds of 1 and 1/3, a ratio of 3."""
    trainer = SimpleNamespace(beta=0.1, accelerator=ON_CPU)
    losses, _, _, _, odds = ORPOTrainer.odds_ratio_loss(trainer, torch.tensor([math.log(0.5)]), torch.tensor([math.log(0.25)]))
    assert odds.item() == pytest.approx(math.log(3))
    assert losses.item() == pytest.approx(0.1 * log_sigmoid(math.log(3))) == pytest.approx(0.1 * math.log(3 / 4))  # taken from the likelihood loss


def test_cpo_is_dpo_with_a_uniform_reference():
    assert cpo_loss(CPO(), -2.0, -5.0, 0.2) == pytest.approx(-log_sigmoid(0.2 * 3.0))
    smoothed = cpo_loss(CPO(CPO.Config(label_smoothing=0.1)), -2.0, -5.0, 0.2)
    assert smoothed == pytest.approx(-0.9 * log_sigmoid(0.6) - 0.1 * log_sigmoid(-0.6))


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.6])
def test_simpo_wants_a_margin_between_means(gamma):
    assert cpo_loss(SimPO(SimPO.Config(gamma=gamma)), -0.4, -1.2, 2.0) == pytest.approx(-log_sigmoid(2.0 * 0.8 - gamma))


def test_simpo_with_the_beta_of_dpo_is_warned_about(tmp_path):
    def warned(beta: float) -> list[str]:
        spec = make_spec(tmp_path, "cpo", base={"name": "simpo"}, training__beta=beta)
        return [problem.field for problem in stacking.check_stack(spec, entries_for(spec)).warnings]

    assert warned(0.1) == ["training.beta"]
    assert warned(2.0) == []


def test_entropy_is_the_mean_over_the_tokens_of_the_answers():
    logits = torch.zeros(2, 4, 8)
    logits[1, 2:] = torch.tensor([50.0, *[0.0] * 7])  # certain
    labels = torch.tensor([[-100, 3, 4, -100], [-100, -100, -100, 5]])
    assert compute_mean_entropy([(logits, labels)]) == pytest.approx(2 / 3 * math.log(8))


@pytest.mark.parametrize("trainer", ["orpo", "cpo"])
def test_rows_with_calls_of_tools_or_weights_say_what_becomes_of_them(tmp_path, trainer):
    row = {"prompt": "2+2?", "chosen": "4", "rejected": "5"}
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": {"a": 2}}}]}

    def checked(changes):
        file = tmp_path / "rows.jsonl"
        file.write_text(json.dumps(row | changes) + "\n")
        return run_preflight_checks(make_spec(tmp_path / "run", trainer, dataset={"path": str(file)}))

    [problem] = checked({"chosen": [call]}).problems
    assert problem.message.startswith(f"chosen holds calls of tools, which {trainer} cannot pass on")
    [problem] = checked({"tools": [{"name": "add"}]}).problems
    assert problem.message.startswith(f"tools are described, which {trainer} cannot pass on")
    weighted = checked({"weight": 0.5})
    assert weighted.ok
    assert any(f"which {trainer} does not read" in problem.message for problem in weighted.warnings)
