"""What a model of the hub, or a folder, is said to be, asked of the trainers in a child of its own.

Not in the preflight's: that one runs reward functions of other packages and so has neither the hub's token nor a way out, this one runs nobody's
code. An answer is kept for a minute, since a form is checked after every change.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from django.core.cache import caches

from lab.lib import bounded_process
from lab.lib.child_environment import MODEL_LOOKUP

LOOK_UP = "trainers.checks.model_lookup:answer_model_lookup"
SECONDS = 20  # a folder without weights is counted by building its model: a few seconds of imports
LIMITS = bounded_process.ProcessLimits(seconds=SECONDS, cpu_seconds=SECONDS, memory=8 << 30, nice=0)
KEPT_SECONDS = 60

children = bounded_process.ForkedChildren(bounded_process.ForkServer(MODEL_LOOKUP), bounded_process.CallSlots(at_once=8, of_one=8))


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
    try:
        [answer] = children.call(LOOK_UP, "", LIMITS, asked.encode())
    except bounded_process.TooSlow:
        return build_unresolved_answer(policy, f"no answer within {SECONDS} s")
    except bounded_process.ChildFailed as error:
        return build_unresolved_answer(policy, f"the look-up failed, {error.said}")
    except bounded_process.TooManyChildren:
        return build_unresolved_answer(policy, "too many look-ups at once")
    except bounded_process.BoundedError:
        return build_unresolved_answer(policy, f"it took more than {LIMITS.memory >> 30} GiB of memory")
    return json.dumps(answer)


def build_unresolved_answer(policy: dict[str, Any], why: str) -> str:
    if policy["kind"] == "hub":
        place, name, fix = "policy.name", policy["name"], "the worker will download it when the run starts"
    else:
        place, name, fix = "policy", "the policy", "check again, this machine may be busy"
    warning = {"field": place, "value": name, "message": f"the config of {name} could not be resolved from here: {why}", "fix": fix}
    return json.dumps({"facts": None, "problems": [], "warnings": [warning], "unresolved": policy["kind"] == "hub"})
