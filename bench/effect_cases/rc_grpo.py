"""RC-GRPO on word problems: both arms start from the same reward-conditioned fine-tuning; then groups with marks against groups without."""

import shutil
from pathlib import Path

from bench.effect_cases import Case, tiny
from trainers import train
from trainers.spec import FINAL, parse_spec

FINE_TUNING, STEPS = 150, 24


def conditioned(seed: int) -> Path:
    """Folder of the policy after stage 1; trained once."""
    folder = tiny.CACHE / f"rctp-{FINE_TUNING}-{seed}"
    if not (folder / FINAL).is_dir():
        shutil.rmtree(folder, ignore_errors=True)
        spec = parse_spec(tiny.spec_of(seed, "rc-grpo", trainer="sft", steps=FINE_TUNING, heldout=0) | {"output": str(folder.absolute())})
        if train.run(spec, folder) != train.FINISHED:
            raise RuntimeError("stage 1 did not finish")
    return folder / FINAL


def silent(seed: int, method: str) -> float:
    policy = {"kind": "folder", "path": str(conditioned(seed).absolute())}
    made = tiny.run_train(seed, method, base="grpo", steps=STEPS, heldout=64, policy=policy)
    return sum(step["frac_reward_zero_std"] for step in made.steps) / len(made.steps)


def measure(seed: int) -> tuple[float, float]:
    return silent(seed, "rc-grpo"), silent(seed, "")


CASE = Case(
    method="rc-grpo",
    parent="grpo",
    claim="groups that mix marks have equal rewards less often than groups that all ask for good answers",
    quantity="share of groups whose rewards are all equal, mean of 24 steps",
    direction="lower",
    problem="word problems, tiny policy after 150 steps of reward-conditioned fine-tuning, 24 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
