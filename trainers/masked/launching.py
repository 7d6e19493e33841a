"""Which runs train a masked diffusion policy, what they start from, and what does not go together."""

from pathlib import Path
from typing import Any

from trainers.attempt.report import Reporter
from trainers.attempt.stop import StopRequest
from trainers.contract import stacking
from trainers.contract.problems import Problem, SpecError
from trainers.contract.spec import RunSpec, TinyPolicy
from trainers.masked.cold_start import ensure_masked_policy, ensure_untrained_masked_policy
from trainers.masked.model import MaskedLlama
from trainers.methods.masked_base import MaskedBase
from trainers.methods.registry import UnknownMethod, load_method_class
from trainers.tasks.base import Task


def trains_masked_policy(spec: RunSpec) -> bool:
    """Whether the base of a spec is one of masked policies."""
    try:
        return issubclass(load_method_class(stacking.base_choice(spec).name), MaskedBase)
    except UnknownMethod:  # said where the stack is built
        return False


def is_masked_base(base: Any) -> bool:
    return isinstance(base, MaskedBase)


def ensure_masked_start(spec: RunSpec, task: Task, reporter: Reporter, stop: StopRequest) -> Path:
    """Folder of the built-in masked policy that a run starts from. Raises SpecError and Stopped."""
    assert isinstance(spec.policy, TinyPolicy)
    refuse_turns(task)
    if spec.policy.cold_start:
        return ensure_masked_policy(task, spec.task.difficulty, reporter, stop)
    return ensure_untrained_masked_policy(task)


def refuse_turns(task: Task) -> None:
    """Raises SpecError for a task of several turns: a masked policy writes its answer in one window."""
    if task.max_turns > 1 or task.trl is not None:
        message = "it has several turns, and a masked policy writes its answer at once"
        raise SpecError([Problem("task.name", task.name, message, "choose a task of one turn")])


def check_kinds_agree(model: Any, task: Task, base: Any) -> None:
    """Raises SpecError for a base and a policy of which one writes from left to right and the other in any order."""
    if is_masked_base(base):
        refuse_turns(task)
    if is_masked_base(base) and not isinstance(model, MaskedLlama):
        message = "it writes from left to right, and the base trains masked diffusion policies"
        raise SpecError([Problem("policy", type(model).__name__, message, "start from the built-in policy, or from a run of such a base")])
    if isinstance(model, MaskedLlama) and not is_masked_base(base):
        message = "the policy is a masked one, which has no log-probabilities from left to right"
        raise SpecError([Problem("base", base.card.name, message, "choose a base of masked policies")])
