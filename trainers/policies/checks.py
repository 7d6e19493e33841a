"""Whether the policy a spec names is there and can be loaded, as far as this machine can tell without loading it."""

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from trainers.contract.policy_folder import PolicyFolder, inspect_policy_folder
from trainers.contract.problems import Problem
from trainers.contract.spec import RUN_FILE, TINY_CONTEXT, FolderPolicy, HubPolicy, Policy, RunPolicy, RunSpec, TinyPolicy


def check_policy(spec: RunSpec, problems: list[Problem], warnings: list[Problem], pending: bool = False) -> int | None:
    """Adds what is wrong with the policy and returns its context in tokens, None where that is not known."""
    if isinstance(spec.policy, RunPolicy) and pending:
        return None
    folder = inspect_policy(spec.policy)
    if folder is None:
        return TINY_CONTEXT
    problems += folder.problems
    warnings += folder.warnings
    return folder.context


def check_teacher(teacher: Policy, problems: list[Problem], warnings: list[Problem]) -> None:
    """Adds what is wrong with the policy to learn from, as ``check_policy`` does for the one to train."""
    folder = inspect_policy(teacher)
    if folder is not None:
        problems += move_problems_to_teacher(folder.problems)
        warnings += move_problems_to_teacher(folder.warnings)


def move_problems_to_teacher(problems: Iterable[Problem]) -> list[Problem]:
    """Problems with a policy as problems with the teacher that it is."""
    return [replace(problem, field=problem.field.replace("policy", "teacher", 1)) for problem in problems]


def inspect_policy(policy: Policy) -> PolicyFolder | None:
    """None for the built-in one."""
    if isinstance(policy, FolderPolicy):
        return inspect_policy_folder(Path(policy.path), "policy.path")
    if isinstance(policy, HubPolicy):
        return inspect_cached_policy(policy)
    return inspect_run_policy(policy) if isinstance(policy, RunPolicy) else None


def inspect_run_policy(policy: RunPolicy) -> PolicyFolder:
    """The folder of a run's policy; when it is not there, the problem names the checkpoints that are."""
    run, path = Path(policy.folder), policy.path()
    if not (run / RUN_FILE).is_file():
        folder = PolicyFolder(run, "policy.folder")
        folder.refuse(f"is not the folder of a run: it has no {RUN_FILE}", "give the folder of a run")
    elif not path.is_dir():
        folder = PolicyFolder(run, "policy.checkpoint")
        found = saved_steps(run)
        there = f"it has checkpoints {', '.join(map(str, found))}" if found else "it has saved nothing yet"
        folder.problems.append(
            Problem("policy.checkpoint", policy.checkpoint, f"{run} has no {path.name}; {there}", "wait for it, or choose another")
        )
    else:
        folder = inspect_policy_folder(path, "policy.folder")
    return folder


def template_of(policy: TinyPolicy | HubPolicy | FolderPolicy | RunPolicy) -> str | None:
    """The chat template as text; None where it is not on this machine. The built-in policy's knows no tools."""
    if isinstance(policy, TinyPolicy):
        return ""
    if isinstance(policy, HubPolicy):
        return None
    return template_in(Path(policy.path) if isinstance(policy, FolderPolicy) else policy.path())


def template_in(folder: Path) -> str | None:
    try:
        if (folder / "chat_template.jinja").is_file():
            return (folder / "chat_template.jinja").read_text(encoding="utf-8")
        found = json.loads((folder / "tokenizer_config.json").read_bytes()).get("chat_template")
    except (OSError, ValueError, RecursionError, AttributeError):
        return None
    return None if found is None else json.dumps(found)


def saved_steps(run: Path) -> list[int]:
    names = [path.name.removeprefix("checkpoint-") for path in (run / "checkpoints").glob("checkpoint-*")]
    return sorted(int(name) for name in names if name.isdecimal())


def is_hub_offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def find_cached_folder(policy: HubPolicy) -> Path | None:
    """Where the local hub cache has the policy's configuration; never asks the network."""
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(policy.name, "config.json", revision=policy.revision)
    return Path(config).parent if isinstance(config, str) else None


def inspect_cached_policy(policy: HubPolicy) -> PolicyFolder:
    """What the local hub cache has of the policy."""
    place = find_cached_folder(policy)
    if place is None:
        return PolicyFolder(Path(policy.name), "policy.name")
    folder = inspect_policy_folder(place, "policy.name", weights=any(place.glob("*.safetensors")))
    if not any((place / name).exists() for name in ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")):
        folder.problems = [problem for problem in folder.problems if "tokenizer" not in problem.message]  # not downloaded yet
    return folder
