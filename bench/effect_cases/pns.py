"""PNS on word problems: preference pairs against plausible negatives of a generator trained in reverse, against answers that came out wrong."""

import shutil
from pathlib import Path

from bench.effect_cases import Case, Pairs, tiny
from trainers.attempt import train
from trainers.contract.spec import FINAL, parse_spec

REVERSE_STEPS, STEPS, PROMPTS = 30, 40, 600


def generator(seed: int) -> Path:
    """Folder of the negative generator; trained once."""
    folder = tiny.kept_folder(f"pns-{REVERSE_STEPS}-{seed}")
    if not (folder / FINAL).is_dir():
        shutil.rmtree(folder, ignore_errors=True)
        spec = parse_spec(tiny.spec_of(seed, "pns", base="grpo", steps=REVERSE_STEPS, heldout=0) | {"output": str(folder)})
        if train.run_training(spec, folder) != train.FINISHED:
            raise RuntimeError("the negative generator did not finish")
    return folder / FINAL


def trained(seed: int, method: str) -> tiny.Trained:
    config = {"generator": str(generator(seed))} if method else None
    return tiny.run_train(seed, method, config, trainer="dpo", steps=STEPS, heldout=256, training__sampled_prompts=PROMPTS)


def measure(seed: int) -> Pairs:
    return tiny.budgeted_accuracies(trained(seed, "pns"), trained(seed, ""))


CASE = Case(
    method="pns",
    parent="dpo",
    claim="for the same number of pairs, plausible negatives raise accuracy more than random wrong ones",
    quantities=(tiny.ACCURACY, tiny.ACCURACY_AT_TOKENS),
    problem="word problems, tiny policy, pairs of its own answers; generator trained for 30 steps",
    measure=measure,
    seeds=3,
    launch={"trainer": "dpo", "training__sampled_prompts": PROMPTS},
)
