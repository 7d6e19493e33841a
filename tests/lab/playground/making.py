"""A finished run that made a steering vector: its final policy is the untrained tiny one, with the vector beside it."""

import shutil

import torch
from django.utils import timezone

from lab.teams.accounts.models import Team
from lab.training.runs.models import Checkpoint, Run, Status
from tests.lab.supervisor.spools import make_run
from trainers.attempt.inputs import digest_weights
from trainers.contract.steering_file import METHOD, SteeringFacts
from trainers.policies import tiny
from trainers.policies.steering_files import save_steering_vector

SIZE, LAYERS = 128, 2  # of the tiny policy


def make_steering_run(team: Team, name: str = "steers", **facts: object) -> Run:
    spec = {"recipe": "procedure", "methods": [{"name": METHOD, "config": {}}]}
    run = make_run(team, status=Status.FINISHED, name=name, spec=spec, trainer="procedure")
    save_vector(run, **facts)
    return run


def save_vector(run: Run, **facts: object) -> Checkpoint:
    """A vector long enough to change what a random policy writes."""
    folder = run.folder / "final"
    shutil.copytree(tiny.ensure_untrained_policy(), folder)
    own = {"layer": 1, "layers": LAYERS, "hidden_size": SIZE, "alpha": 2.5, "pairs": 12, "positions": "mean", "weights": digest_weights(folder)}
    vector = 20 * torch.randn(SIZE, generator=torch.Generator().manual_seed(0))
    save_steering_vector(folder, vector, SteeringFacts(**{**own, **facts}))  # type: ignore[arg-type]
    return Checkpoint.objects.create(run=run, attempt=1, step=3, path="final", bytes=1, final=True, created_at=timezone.now())
