"""Policies and datasets as people name them (a run's id, a folder's or file's name) and as a spec holds them (paths), in both directions.

No path ever comes from a browser: a name is one component below a root of the settings, a run is one of the team's own. Only the command line,
which could read the files anyway, may give paths.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.conf import settings

from lab.teams.accounts.models import Team
from lab.training.runs import team_tasks
from lab.training.runs.models import Run, Status
from lab.training.runs.stored_checkpoints import is_policy_there
from trainers.contract.spec import FINAL, Problem, SpecError

Spec = dict[str, Any]


def resolve_references(team: Team, spec: Spec, *, paths: bool = False, parent: Run | None = None) -> Spec:
    """The spec with every name replaced by the path it stands for. Raises SpecError naming the field.

    ``paths``: paths are taken as they are (command line). ``parent``: the run of an earlier stage, which need not have finished.
    """
    spec = dict(spec)
    policy, teacher, dataset = spec.get("policy"), spec.get("teacher"), spec.get("dataset")
    if isinstance(policy, dict):
        spec["policy"] = resolve_policy(team, policy, paths, parent)
    if isinstance(teacher, dict):
        try:
            spec["teacher"] = resolve_policy(team, teacher, paths, None)
        except SpecError as error:
            raise SpecError([replace(problem, field=problem.field.replace("policy", "teacher", 1)) for problem in error.problems]) from None
    if isinstance(dataset, dict):
        spec["dataset"] = {**drop_spec_keys(dataset, "file"), "path": resolve_path_below(datasets_of(team), dataset, "file", "dataset", paths)}
    if isinstance(spec.get("task"), dict):
        spec["task"] = team_tasks.resolve_task(team, spec["task"], paths=paths)
    return spec


def resolve_policy(team: Team, policy: Spec, paths: bool, parent: Run | None) -> Spec:
    """A policy with the path of what it names. Raises SpecError."""
    if policy.get("kind") == "run":
        return run_policy(team, policy, paths, parent)
    if policy.get("kind") != "folder":
        return policy
    return {**drop_spec_keys(policy, "folder"), "path": resolve_path_below(Path(settings.POLICIES_ROOT), policy, "folder", "policy", paths)}


def datasets_of(team: Team) -> Path:
    return Path(settings.DATASETS_ROOT) / str(team.pk)


def drop_spec_keys(part: Spec, *keys: str) -> Spec:
    return {key: value for key, value in part.items() if key not in keys}


def resolve_path_below(root: Path, part: Spec, key: str, field: str, paths: bool) -> str:
    """The path of the folder or file that ``part`` names under ``key`` (or under ``path``, as the spec's own field is called)."""
    key = key if key in part else "path"
    value, field = part.get(key), f"{field}.{key}"
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise SpecError([Problem(field, value, "not a name", "choose one from the form", given=value is not None)])
    if paths and key == "path":
        return str(Path(value).expanduser().resolve())
    if Path(value).name != value or value == "..":
        raise SpecError(
            [Problem(field, value, "a path; only names of files and folders in the lab are accepted", f"put it in {root.name}/ and enter its name")]
        )
    target = root / value
    if not target.exists():
        names = sorted(path.name for path in root.iterdir() if not path.name.startswith(".")) if root.is_dir() else []
        available = f"there are: {', '.join(names)}" if names else f"nothing is there yet; put it in {root}"
        raise SpecError([Problem(field, value, "not found", available)])
    return str(target)


OUTSIDE = "was trained by an external script, which has the policy"


def run_policy(team: Team, policy: Spec, paths: bool, parent: Run | None) -> Spec:
    checkpoint = policy.get("checkpoint", FINAL)
    if "run" not in policy:
        if paths and isinstance(policy.get("folder"), str):
            return {**policy, "folder": str(Path(policy["folder"]).expanduser().resolve())}
        raise SpecError([Problem("policy.run", None, "no run is chosen", "choose one of your team's runs", given=False)])
    run = run_named(team, policy["run"])
    if run != parent or checkpoint != FINAL:
        has_checkpoint(run, checkpoint)
    return {**drop_spec_keys(policy, "run"), "folder": str(run.folder), "checkpoint": checkpoint}


def run_named(team: Team, name: Any) -> Run:
    """A run of the team by its id, with files of its own here. Raises SpecError."""
    try:
        run = Run.objects.of(team).get(pk=uuid.UUID(str(name)))
    except (ValueError, Run.DoesNotExist):
        raise SpecError([Problem("policy.run", str(name), "your team has no such run", "choose one of your team's runs")]) from None
    if run.outside:
        raise SpecError([Problem("policy.run", str(run), OUTSIDE, "copy that folder to where the lab's policies are and choose it there")])
    return run


def has_checkpoint(run: Run, checkpoint: Any) -> None:
    """Raises SpecError unless the run holds what ``checkpoint`` names."""
    steps = sorted(set(run.checkpoints.filter(final=False).values_list("step", flat=True)))
    available = f"it has checkpoints at steps {', '.join(map(str, steps))}" if steps else "wait for it to finish or to write a checkpoint"
    if checkpoint == FINAL:
        if run.status != Status.FINISHED and not (run.folder / FINAL / "config.json").exists() and not is_policy_there(run, FINAL):
            raise SpecError([Problem("policy.run", str(run), f"is {run.status} and has no final policy yet", available)])
    elif not isinstance(checkpoint, int) or isinstance(checkpoint, bool) or not is_policy_there(run, checkpoint):
        raise SpecError([Problem("policy.checkpoint", checkpoint, f"{run} has no such checkpoint", available)])


def restore_reference_names(team: Team, spec: Spec) -> Spec:
    """The reverse of ``resolve_references``, for a form that starts from a launched spec: run ids and names instead of paths, without the output."""
    spec = drop_spec_keys(spec, "output")
    dataset = spec.get("dataset")
    for part in ("policy", "teacher"):
        policy = spec.get(part)
        if isinstance(policy, dict) and policy.get("kind") == "run":
            spec[part] = {**drop_spec_keys(policy, "folder"), "run": Path(policy["folder"]).name}
        elif isinstance(policy, dict) and policy.get("kind") == "folder":
            spec[part] = {"kind": "folder", "folder": Path(policy["path"]).name}
    if isinstance(dataset, dict):
        spec["dataset"] = {**drop_spec_keys(dataset, "path", *([] if dataset.get("sha256") else ["sha256"])), "file": Path(dataset["path"]).name}
    if isinstance(spec.get("task"), dict):
        spec["task"] = team_tasks.name_task_file(spec["task"])
    return spec
