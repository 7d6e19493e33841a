"""RC-GRPO on word problems: both arms start from the same reward-conditioned fine-tuning; then groups with marks against groups without."""

import shutil
from pathlib import Path

from bench.effect_cases import Case, Pairs, Quantity, tiny
from trainers.attempt import train
from trainers.contract.spec import FINAL, parse_spec

FINE_TUNING, STEPS = 150, 24


def conditioned(seed: int) -> Path:
    """Folder of the policy after stage 1; trained once."""
    folder = tiny.kept_folder(f"rctp-{FINE_TUNING}-{seed}")
    if not (folder / FINAL).is_dir():
        shutil.rmtree(folder, ignore_errors=True)
        spec = parse_spec(tiny.spec_of(seed, "rc-grpo", trainer="sft", steps=FINE_TUNING, heldout=0) | {"output": str(folder)})
        if train.run_training(spec, folder) != train.FINISHED:
            raise RuntimeError("stage 1 did not finish")
    return folder / FINAL


def trained(seed: int, method: str) -> tiny.Trained:
    policy = {"kind": "folder", "path": str(conditioned(seed))}
    return tiny.run_train(seed, method, base="grpo", steps=STEPS, policy=policy)


def measure(seed: int) -> Pairs:
    own, parent = trained(seed, "rc-grpo"), trained(seed, "")
    return {
        "silent": (tiny.mean_of_steps(own, "frac_reward_zero_std"), tiny.mean_of_steps(parent, "frac_reward_zero_std"))
    } | tiny.budgeted_accuracies(own, parent)


CASE = Case(
    method="rc-grpo",
    parent="grpo",
    claim="groups that mix marks have equal rewards less often than groups that all ask for good answers",
    quantities=(
        Quantity(
            "silent",
            "share of groups whose rewards are all equal, mean of 24 steps",
            "lower",
            0.05,
            "one group of twenty",
            by_construction="each group mixes marks so that its rewards differ",
        ),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="word problems, tiny policy after 150 steps of reward-conditioned fine-tuning, 24 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
