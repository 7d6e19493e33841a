"""What the trainers say about a spec before a model loads, asked of their command line so that nothing of torch gets in here."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from django.conf import settings

from lab.lib.child_environment import PREFLIGHT, environment_for
from lab.training.runs import memory_fit
from lab.training.runs.model_lookup import look_up_model

SECONDS = 20


class PreflightError(RuntimeError):
    """The check itself did not come to an end; says nothing about the spec."""


def run_preflight(spec: dict[str, Any], *, policy_pending: bool = False, origin: dict[str, Any] | None = None, queue: str = "") -> dict[str, Any]:
    """The report of ``python -m trainers preflight`` on a complete spec. Raises PreflightError.

    ``policy_pending``: the policy is that of a stage that has not finished, so that its folder is not looked for; ``origin`` is then the policy that
    its chain starts from, whose size is that of every stage. ``queue``: whose workers have to have the memory.
    """
    command = [sys.executable, "-m", "trainers", "preflight", *(["--policy-pending"] if policy_pending else [])]
    report = read_report([*command, *choose_model_argument(spec, policy_pending, origin), "-"], spec)
    if queue:
        memory_fit.compare_memory(report, queue, spec["device"])
    return report


def choose_model_argument(spec: dict[str, Any], policy_pending: bool, origin: dict[str, Any] | None) -> list[str]:
    """What a look-up said of the model that the policy is or comes from: the preflight may not ask the hub itself."""
    policy = spec.get("policy")
    model = policy if not policy_pending else origin if origin != policy else None
    if model is None or model["kind"] == "tiny":
        return []
    answer = look_up_model(model)
    if policy_pending:
        answer = json.dumps(json.loads(answer) | {"problems": [], "warnings": []})  # the first stage says those
    return ["--model", answer]


def read_report(command: list[str], spec: dict[str, Any]) -> dict[str, Any]:
    try:
        done = subprocess.run(
            command,
            input=json.dumps(spec).encode(),
            capture_output=True,
            timeout=SECONDS,
            cwd=settings.BASE,
            env=environment_for(PREFLIGHT),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PreflightError(f"the check timed out after {SECONDS} s; try again, the machine may be busy") from None
    except OSError as error:
        raise PreflightError(f"the check could not be started: {error}") from None
    try:
        report = json.loads(done.stdout)
    except ValueError:
        report = None
    if not isinstance(report, dict):
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no output"]
        raise PreflightError(f"the check died with exit code {done.returncode}: {last[0]}")
    return report
