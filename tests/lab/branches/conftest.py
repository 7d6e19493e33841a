"""A finished run with real tokens, a checkpoint and its run.json, so that the real sampling command branches from it."""

import json
import shutil
from pathlib import Path

import pytest
from django.utils import timezone
from tokenizers import Tokenizer

from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from lab.training.runs.launch import launch_recipe
from lab.training.runs.models import Checkpoint, Run, Status
from tests.lab.supervisor.spools import rollout, started, store
from trainers.contract import arrays
from trainers.contract.events import Message
from trainers.policies import tiny
from trainers.tasks import registry

STEP = 3  # of the rollouts: the policy had two updates


def read_tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(Path(tiny.ensure_untrained_policy()) / "tokenizer.json"))


def save_checkpoint(run: Run, step: int) -> Checkpoint:
    path = f"checkpoints/checkpoint-{step}"
    shutil.copytree(tiny.ensure_untrained_policy(), run.folder / path)
    return Checkpoint.objects.create(run=run, attempt=1, step=step, path=path, bytes=1, created_at=timezone.now())


def make_branchable(team: Team, user: User, members: int = 2) -> Rollout:
    """The first member of a group of step STEP; the prompt is one of the task's own training examples."""
    [run] = launch_recipe(team, user, "grpo", name="branchable")
    Run.across_teams.filter(pk=run.pk).update(status=Status.FINISHED)
    task = registry.get_task("mini_gsm")
    training, seed = run.spec["training"], run.spec.get("seed", 0)
    example = task.examples("train", training["prompts"], seed, run.spec["task"]["difficulty"])[0]
    tokenizer, events = read_tokenizer(), []
    for sample in range(members):
        text = task.gold(example) + "!" * sample
        coded = tokenizer.encode(text, add_special_tokens=False)
        ids, ends = coded.ids, [end for _, end in coded.offsets]
        lengths = [end - start for start, end in zip([0, *ends[:-1]], ends, strict=True)]
        measured = arrays.pack_array([0.5] * len(ids), "e")
        own = {"ids": arrays.pack_ids(ids), "lengths": arrays.pack_array(lengths, "H"), "logprobs": arrays.pack_array([-0.5] * len(ids), "e")}
        about = {"completion": text, "reference": example.reference, "reward": float(sample), "length": len(ids), "entropies": measured}
        events.append(rollout(STEP, 0, sample, prompt=[Message(one.role, one.content) for one in example.prompt], **own, **about))
    store(run, started(), *events)
    run.refresh_from_db()
    (run.folder / "run.json").write_text(json.dumps(run.spec))
    return Rollout.objects.select_related("run__team", "prompt").get(run=run, sample=0)


@pytest.fixture
def stored(team: Team, owner: User) -> Rollout:
    return make_branchable(team, owner)


@pytest.fixture
def checkpoint(stored: Rollout) -> Checkpoint:
    return save_checkpoint(stored.run, 2)
