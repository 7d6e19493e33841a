"""What was recorded of an attempt's environment and inputs: as lines of a page, as JSON, as requirements.txt, and as values to compare runs by."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from lab.training.runs.models import Attempt

NOT_RECORDED = "not recorded"
SHORT = 12  # digits of a hash beside other words
REQUIREMENT = re.compile(r"[A-Za-z0-9][\w.-]*==[\w.!+-]+", re.ASCII)
ADDRESS = re.compile(r"(?:git\+)?(?:https?|ssh|file)://[!-~]+")
ROWS_FROM = {"dataset": "of the dataset", "task": "drawn with the run's seed", "policy": "of pairs sampled from the policy"}


@dataclass(frozen=True)
class Recorded:
    """``text``: the value, empty where it was not recorded. ``note``: what else is known of it. ``copies``: whether people want to copy it."""

    label: str
    text: str
    note: str = ""
    copies: bool = False


def list_recorded_values(attempt: Attempt) -> list[Recorded]:
    """Everything but the packages, in the order of the page; what was not recorded has no text."""
    environment, inputs = attempt.environment or {}, attempt.inputs or {}
    code, hardware, task = environment.get("code") or {}, environment.get("hardware") or {}, environment.get("task")
    policy = inputs.get("revision") or inputs.get("weights") or ""
    return [
        Recorded("Code", str(code.get("commit", "")), describe_changes(code), copies=True),
        *([Recorded("Task package", name_package(task), describe_origin(task))] if task else []),
        Recorded(
            "Training data", str(inputs.get("sha256", "")), count_rows(inputs, "rows", ROWS_FROM.get(inputs.get("source", ""), "")), copies=True
        ),
        *(
            [Recorded("Held-out prompts", str(inputs["heldout_sha256"]), count_rows(inputs, "heldout_rows"), True)]
            if inputs.get("heldout_sha256")
            else []
        ),
        Recorded("Policy", str(policy), "commit on the hub" if inputs.get("revision") else "SHA-256 of the weights" if policy else "", copies=True),
        Recorded("GPU", ", ".join(hardware.get("gpus", [])) or ("none" if hardware else "")),
        *([Recorded("Driver", str(hardware["driver"]))] if hardware.get("driver") else []),
        Recorded("CUDA", str(hardware.get("cuda") or ("none: a CPU build of torch" if hardware else ""))),
        Recorded("CPU", str(hardware.get("cpu", "")), f"{hardware['cores']} cores" if hardware.get("cores") else ""),
        Recorded("System", str(hardware.get("system", ""))),
    ]


def describe_changes(code: dict[str, Any]) -> str:
    if not code.get("commit"):
        return ""
    if code.get("source") == "release":
        return "of the release; later changes are not recorded"
    if code.get("changed") is None:
        return "changes not recorded"
    return "with uncommitted changes" if code["changed"] else "no uncommitted changes"


def describe_origin(package: dict[str, Any]) -> str:
    """Where a package came from, when not from an index."""
    words = [str(package.get("url", "")), f"at {package['commit'][:SHORT]}" if package.get("commit") else ""]
    words += ["editable" if package.get("editable") else "", "with uncommitted changes" if package.get("changed") else ""]
    return ", ".join(word for word in words if word)


def name_package(package: dict[str, Any]) -> str:
    return f"{package.get('name', '')} {package.get('version', '')}".strip()


def count_rows(inputs: dict[str, Any], name: str, source: str = "") -> str:
    rows = inputs.get(name)
    return f"SHA-256 of {rows:,} {'row' if rows == 1 else 'rows'} {source}".strip() if isinstance(rows, int) and inputs.get("sha256") else ""


def build_environment_json(attempt: Attempt) -> dict[str, Any]:
    """All of it; null where it was not recorded."""
    return {
        "attempt": attempt.number,
        "command": attempt.command,
        "host": attempt.host,
        "device": attempt.device,
        "versions": attempt.versions,
        "environment": attempt.environment,
        "inputs": attempt.inputs,
        "memory": attempt.memory,
        "packages": attempt.packages.packages if attempt.packages else None,
    }


def write_requirements(attempt: Attempt) -> str:
    """The packages for ``pip install -r``; what pip cannot fetch from elsewhere, or what is no requirement, is a comment."""
    lines = [f"# run #{attempt.run.number}, attempt {attempt.number}, Python {attempt.versions.get('python', NOT_RECORDED)}"]
    return "\n".join([*lines, *(write_requirement(package) for package in (attempt.packages.packages if attempt.packages else []))]) + "\n"


def write_requirement(package: dict[str, Any]) -> str:
    name, url, commit = str(package.get("name", "")), str(package.get("url", "")), str(package.get("commit", ""))
    pinned = f"{name}=={package.get('version', '')}"
    if not REQUIREMENT.fullmatch(pinned):
        return f"# left out: {' '.join(ascii(pinned)[1:-1].split())}"
    if not url:
        return pinned
    address = f"git+{url}@{commit}" if commit and not url.startswith("file:") else url
    if url.startswith("file:") or not ADDRESS.fullmatch(address):
        return f"# {pinned} was installed from a folder or file of the worker{f', commit {commit[:64]}' if commit.isalnum() else ''}"
    return f"{name} @ {address}"


def list_comparable_values(attempt: Attempt | None) -> dict[str, str]:
    """What two runs may differ in, by name, as text; the packages by theirs. Nothing for what was not recorded."""
    if attempt is None:
        return {}
    environment, inputs = attempt.environment or {}, attempt.inputs or {}
    code, hardware = environment.get("code") or {}, environment.get("hardware") or {}
    commit = str(code.get("commit", ""))
    values = {
        "code.commit": f"{commit} (changed)" if commit and code.get("changed") else commit,
        "data.sha256": inputs.get("sha256", ""),
        "data.heldout_sha256": inputs.get("heldout_sha256", ""),
        "policy.revision": inputs.get("revision", ""),
        "policy.sha256": inputs.get("weights", ""),
        "hardware.gpu": ", ".join(hardware.get("gpus", [])),
        "hardware.driver": hardware.get("driver", ""),
        "hardware.cuda": hardware.get("cuda", ""),
        "hardware.cpu": hardware.get("cpu", "") if not hardware.get("gpus") else "",
    }
    packages = {f"package.{name}": str(version) for name, version in attempt.versions.items()}
    for package in attempt.packages.packages if attempt.packages else []:
        origin = f" ({package['commit'][:SHORT]})" if package.get("commit") else ""
        packages[f"package.{package['name']}"] = f"{package['version']}{origin}"
    return {name: str(value) for name, value in {**values, **packages}.items() if value}
