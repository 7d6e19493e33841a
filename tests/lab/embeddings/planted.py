"""A run whose rollouts say one of three things, a policy on its disk, and a sentence encoder in a folder."""

import random
import shutil
from dataclasses import dataclass
from pathlib import Path

from django.utils import timezone

from lab.training.runs.models import Checkpoint, Run
from tests.lab.supervisor.spools import rollout, started, store
from tests.trainers.test_embedding import write_encoder
from trainers.policies import tiny


@dataclass(frozen=True)
class Plan:
    words: tuple[str, ...]
    count: int
    reward: float


# By the group of the rollouts, so that it says of each which it is. The words are those that the encoder's tokenizer knows.
PLANTED = {
    0: Plan(("seven", "plus", "four", "is", "eleven"), 18, 1.0),
    1: Plan(("no", "answer"), 12, 0.0),
    2: Plan(("cat", "sat", "the"), 6, -1.0),
}


def plant(run: Run, times: int = 3) -> Run:
    """``times`` steps of 6, 4 and 2 rollouts, each with a text of its own that begins with the first word of its kind."""
    made, chance = [], random.Random(7)
    for step in range(1, times + 1):
        for group, plan in PLANTED.items():
            for sample in range(plan.count // 3):
                place = (step - 1) * (plan.count // 3) + sample
                text = " ".join([plan.words[0], *chance.choices(plan.words, k=20)])
                correct = {"correct": float(plan.reward > 0.5)}
                made.append(rollout(step, group, sample, completion=text, reward=plan.reward + 0.1 * (place % 2), rewards=correct))
    store(run, started(), *made)
    run.refresh_from_db()
    return run


def checkpoint(run: Run, step: int, final: bool = False) -> Checkpoint:
    path = "final" if final else f"checkpoints/checkpoint-{step}"
    shutil.copytree(tiny.ensure_untrained_policy(), run.folder / path)
    return Checkpoint.objects.create(run=run, attempt=1, step=step, path=path, bytes=1, final=final, created_at=timezone.now())


def place_encoder(folder: Path) -> str:
    """Its name."""
    write_encoder(folder)
    return folder.name
