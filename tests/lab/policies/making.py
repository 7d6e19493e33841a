"""A run whose checkpoints are small real policies: safetensors, configuration, tokenizer, and what only its trainer needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from lab.data.loop import chores
from lab.data.loop.models import Match
from lab.data.loop.win_rate import child_places
from lab.models.policies.models import Alias, Proposal, Push
from lab.teams.accounts.models import Team, User
from lab.training.runs.launch import launch_run
from lab.training.runs.models import Checkpoint, Run, Status
from tests.lab.loop.making import SPEC, heldout, judge
from tests.lab.supervisor.spools import measured, started, store
from trainers.contract.events import AnyEvent

CONFIG: dict[str, Any] = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "max_position_embeddings": 256}


def write_policy(folder: Path, trainer: bool = True, **config: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    save_file({"weight": np.arange(12, dtype=np.float32).reshape(3, 4)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    if trainer:
        for name in ("optimizer.pt", "rng_state.pth", "scheduler.pt", "methods.pt"):
            (folder / name).write_bytes(b"\x80\x04secret pickle")
        (folder / "trainer_state.json").write_text("{}")


def place(run: Run, step: int, final: bool = False, attempt: int = 1, **config: Any) -> Checkpoint:
    path = "final" if final else f"checkpoints/checkpoint-{step}"
    folder = run.folder / path
    write_policy(folder, trainer=not final, **config)
    size = sum(file.stat().st_size for file in folder.iterdir())
    return Checkpoint.objects.create(run=run, attempt=attempt, step=step, path=path, bytes=size, final=final, created_at=run.created_at)


def trained(team: Team, user: User | None, *events: AnyEvent, steps: tuple[int, ...] = (50, 100), name: str = "trained", **spec: Any) -> Run:
    """Finished at its last step, with a checkpoint at each of ``steps`` and a final policy."""
    run = launch_run(team, user, {**SPEC, **spec}, name)
    store(run, started(total_steps=steps[-1]), *(measured(step, values={"reward": step / 100, "entropy": 1.5}) for step in steps), *events)
    for step in steps:
        place(run, step)
    place(run, steps[-1], final=True)
    Run.across_teams.filter(pk=run.pk).update(status=Status.FINISHED, step=steps[-1])
    run.refresh_from_db()
    return run


def final_of(run: Run) -> Checkpoint:
    return Checkpoint.objects.select_related("run__team", "run__created_by").get(run=run, final=True)


def at(run: Run, step: int) -> Checkpoint:
    return Checkpoint.objects.select_related("run__team", "run__created_by").get(run=run, final=False, step=step)


def matched(team: Team, user: User, prompts: int = 24, **spec: Any) -> tuple[Run, Match]:
    """A run that people are asked about: its last answers against those of where it started, all different."""
    before, after = ([f"{word} {number}" for number in range(prompts)] for word in ("before", "after"))
    run = trained(team, user, *heldout(0, before), *heldout(100, after), **spec)
    match = Match.objects.create(team=team, child=run, created_by=user)
    chores.run_loop_chores()
    match.refresh_from_db()
    assert match.queue is not None, match.problem
    return run, match


def vote(match: Match, user: User, wins: int, losses: int = 0) -> None:
    """That many votes for the child, then that many against it."""
    items = list(match.queue.items.order_by("place"))  # type: ignore[union-attr]
    places = child_places(match, items)
    for item, won in zip(items, [True] * wins + [False] * losses, strict=False):
        place = places[item.pk]
        judge(item, user, "ab"[place] if won else "ba"[place])


def make_policies(team: Team, user: User, mark: str, run: Run) -> None:
    """For the cast: a checkpoint, asked for, that holds an alias and was pushed."""
    checkpoint = place(run, 1)
    alias = Alias.objects.create(team=team, name="candidate", checkpoint=checkpoint)
    Proposal.objects.create(team=team, alias=alias, checkpoint=checkpoint, reason=f"reason {mark}", asked_by=user)
    Push.objects.create(team=team, checkpoint=checkpoint, repository=f"{mark}/policy", state="failed", problem=f"problem {mark}", by=user)
