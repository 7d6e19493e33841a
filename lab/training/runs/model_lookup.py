"""What a model of the hub, or a folder, is said to be, asked of the trainers' command line in a child of its own.

Not in the preflight's: that one runs reward functions of other packages and so has neither the hub's token nor a way out, this one runs nobody's
code. An answer is kept for a minute, since a form is checked after every change.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from typing import Any

from django.conf import settings
from django.core.cache import caches

from lab.lib.child_environment import MODEL_LOOKUP, environment_for

SECONDS = 20  # a folder without weights is counted by building its model: a few seconds of imports
KEPT_SECONDS = 60


def look_up_model(policy: dict[str, Any]) -> str:
    """The answer as JSON, for ``trainers preflight --model``. A look-up that breaks off is an answer too: that nobody could say."""
    asked = json.dumps(policy, sort_keys=True)
    key = f"model-lookup:{hashlib.sha256(asked.encode()).hexdigest()}"
    kept: str | None = caches["process"].get(key)
    if kept is None:
        kept = ask_trainers(policy, asked)
        caches["process"].set(key, kept, KEPT_SECONDS)
    return kept


def ask_trainers(policy: dict[str, Any], asked: str) -> str:
    command = [sys.executable, "-m", "trainers", "model"]
    try:
        done = subprocess.run(
            command, input=asked.encode(), capture_output=True, timeout=SECONDS, cwd=settings.BASE, env=environment_for(MODEL_LOOKUP), check=False
        )
    except subprocess.TimeoutExpired:
        return build_unresolved_answer(policy, f"no answer within {SECONDS} s")
    except OSError as error:
        return build_unresolved_answer(policy, f"the look-up could not be started, {error}")
    answer = done.stdout.decode(errors="replace").strip()
    return answer if answer.startswith("{") else build_unresolved_answer(policy, f"the look-up died with exit code {done.returncode}")


def build_unresolved_answer(policy: dict[str, Any], why: str) -> str:
    if policy["kind"] == "hub":
        place, name, fix = "policy.name", policy["name"], "the worker will download it when the run starts"
    else:
        place, name, fix = "policy", "the policy", "check again, this machine may be busy"
    warning = {"field": place, "value": name, "message": f"the config of {name} could not be resolved from here: {why}", "fix": fix}
    return json.dumps({"facts": None, "problems": [], "warnings": [warning], "unresolved": policy["kind"] == "hub"})
