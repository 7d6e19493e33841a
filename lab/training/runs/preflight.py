"""What the trainers say about a spec before a model loads, asked in a child process so that nothing of torch gets in here.

The children are forked by a server that has the checks imported: an answer takes 30 ms, where a start of Python alone took 200. A child is its own
for every check, so that a reward function of another package that runs away, or keeps something, does so for nobody else.
"""

from __future__ import annotations

import json
from typing import Any

from lab.lib import bounded_process
from lab.lib.child_environment import PREFLIGHT
from lab.training.runs import memory_fit
from lab.training.runs.model_lookup import look_up_model
from lab.training.runs.stored_checkpoints import is_policy_elsewhere
from trainers.contract.machine import Machine

CHECK = "trainers.checks.preflight_report:answer_preflight"
SECONDS = 20
# A method of another package may import torch, whose libraries write to a gigabyte of memory; somebody waits for the answer.
LIMITS = bounded_process.ProcessLimits(seconds=SECONDS, cpu_seconds=SECONDS, memory=8 << 30, result=64 << 20, nice=0)

children = bounded_process.ForkedChildren(bounded_process.ForkServer(PREFLIGHT), bounded_process.CallSlots(at_once=8, of_one=4))


class PreflightError(RuntimeError):
    """The check itself did not come to an end; says nothing about the spec."""


def run_preflight(
    spec: dict[str, Any], *, policy_pending: bool = False, origin: dict[str, Any] | None = None, queue: str = "", owner: str = ""
) -> dict[str, Any]:
    """The report of ``trainers preflight`` on a complete spec. Raises PreflightError.

    ``policy_pending``: the policy is that of a stage that has not finished, so that its folder is not looked for, nor that of one that only the store
    has; ``origin`` is then the policy that its chain starts from, whose size is that of every stage. ``queue``: whose workers have to have the
    memory. ``owner`` gets a share of the checks at one time.
    """
    policy_pending = policy_pending or is_policy_elsewhere(spec.get("policy") or {})
    machine = memory_fit.find_machine(queue, spec["device"]) if queue else None
    report = ask_trainers(spec, policy_pending, choose_model_answer(spec, policy_pending, origin), owner, machine)
    if queue:
        memory_fit.compare_memory(report, queue)
    return report


def choose_model_answer(spec: dict[str, Any], policy_pending: bool, origin: dict[str, Any] | None) -> str | None:
    """What a look-up said of the model that the policy is or comes from: the preflight may not ask the hub itself."""
    policy = spec.get("policy")
    model = policy if not policy_pending else origin if origin != policy else None
    if model is None or model["kind"] == "tiny":
        return None
    answer = look_up_model(model)
    if policy_pending:
        answer = json.dumps(json.loads(answer) | {"problems": [], "warnings": []})  # the first stage says those
    return answer


def ask_trainers(spec: dict[str, Any], policy_pending: bool, model: str | None, owner: str, machine: Machine | None) -> dict[str, Any]:
    try:
        known = machine.as_json() if machine else None
        [report] = children.call(CHECK, owner, LIMITS, json.dumps(spec).encode(), policy_pending=policy_pending, model=model, machine=known)
    except bounded_process.TooSlow:
        raise PreflightError(f"the check timed out after {SECONDS} s; try again, the machine may be busy") from None
    except bounded_process.TooManyChildren:
        raise PreflightError("too many checks at once; try again in a minute") from None
    except bounded_process.ChildFailed as error:
        raise PreflightError(f"the check failed: {error.said}") from None
    except bounded_process.TooMuchMemory:
        raise PreflightError(f"the check needs more than {LIMITS.memory >> 30} GiB of memory") from None
    except bounded_process.TooLarge:
        raise PreflightError(f"the report is larger than {LIMITS.result >> 20} MiB") from None
    assert isinstance(report, dict)
    return report
