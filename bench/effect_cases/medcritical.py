"""MedCritical on word problems: a policy that has been shown corrections learns from its own, against pairs of answers that happened to differ."""

import shutil
from pathlib import Path

from bench.effect_cases import Case, Pairs, tiny
from trainers.attempt import train
from trainers.contract.spec import FINAL, parse_spec

STEPS, PROMPTS = 40, 600


def stage_1(seed: int) -> Path:
    """Folder of a policy whose demonstrations showed corrections; trained once."""
    folder = tiny.kept_folder(f"medcritical-{seed}")
    if not (folder / FINAL).is_dir():
        shutil.rmtree(folder, ignore_errors=True)
        untrained = {"kind": "tiny", "cold_start": False}
        data = tiny.spec_of(seed, "medcritical", trainer="sft", steps=600, heldout=0, policy=untrained)
        if train.run_training(parse_spec(data | {"output": str(folder)}), folder) != train.FINISHED:
            raise RuntimeError("stage 1 did not finish")
    return folder / FINAL


def trained(seed: int, method: str) -> tiny.Trained:
    policy = {"kind": "folder", "path": str(stage_1(seed))}
    # One answer and its correction, or two answers: the same number of sampled completions for each prompt.
    return tiny.run_train(
        seed, method, trainer="dpo", steps=STEPS, heldout=256, policy=policy, training__sampled_prompts=PROMPTS, training__samples_per_prompt=2
    )


def measure(seed: int) -> Pairs:
    return tiny.budgeted_accuracies(trained(seed, "medcritical"), trained(seed, ""))


CASE = Case(
    method="medcritical",
    parent="dpo",
    claim="for as many sampled answers, pairs of a wrong answer and its correction raise first-try accuracy more than pairs of two answers",
    quantities=(tiny.ACCURACY, tiny.ACCURACY_AT_TOKENS),
    problem="word problems, tiny policy after 600 steps on demonstrations of which half show corrections, 40 steps of DPO",
    measure=measure,
    seeds=3,
    launch={"trainer": "dpo", "training__sampled_prompts": PROMPTS},
)
