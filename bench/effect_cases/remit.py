"""ReMiT on demonstrations of mixed quality (two in three are wrong or guesses), guided by the cold-started policy after 40 steps of GRPO."""

import tempfile
from functools import cache
from pathlib import Path

from bench.effect_cases import Case, tiny
from trainers import train
from trainers.spec import FINAL, parse_spec

SCRATCH = Path(tempfile.gettempdir()) / "effect-remit"


@cache
def tuned(seed: int) -> str:
    """Folder of a policy after a short GRPO run; kept for the seed's other trainings."""
    folder = SCRATCH / str(seed)
    if not (folder / FINAL).is_dir():
        spec = parse_spec({**tiny.spec_of(seed, base="grpo", steps=40, heldout=0), "output": str(folder)})
        if train.run(spec, folder) != train.FINISHED:
            raise RuntimeError("the GRPO run did not finish")
    return str(folder / FINAL)


def measure(seed: int) -> tuple[float, float]:
    own = tiny.run_train(seed, "remit", {"model": tuned(seed)}, trainer="sft")
    parent = tiny.run_train(seed, trainer="sft")
    return own.final("heldout/accuracy"), parent.final("heldout/accuracy")


CASE = Case(
    method="remit",
    parent="sft",
    claim="fine-tuning on mixed demonstrations keeps more of the skill when an RL-tuned policy weighs the tokens",
    quantity="held-out accuracy after 40 steps",
    direction="higher",
    problem="word problems, tiny policy, 40 steps on mixed demonstrations",
    measure=measure,
    seeds=3,
    launch={"trainer": "sft"},
)
