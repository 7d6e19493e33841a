"""What a task that TRL answers (``Task.trl``) asks of the rest of a run, as far as it can be told without torch."""

from collections.abc import Iterator, Sequence

from trainers.catalog.entries import entries_for
from trainers.contract.hyperparameters import GroupRollouts
from trainers.contract.problems import Problem
from trainers.contract.spec import FolderPolicy, HubPolicy, Policy, RunSpec, TinyPolicy
from trainers.data import datasets
from trainers.policies.checks import template_of
from trainers.tasks.base import Example, Task
from trainers.tasks.trl_rollouts import TRLRollouts

# Names under which TRL hands over something of its own, or makes pictures of.
RESERVED = frozenset({"prompt", "prompts", "completion", "completions", "completion_ids", "environments", "trainer_state", "self", "image", "images"})
RESERVED_LOGS = frozenset({"log_extra", "log_metric"})
ENVIRONMENT = "environment"  # of several environments, the key of the data that says which


def find_trl_problems(spec: RunSpec, task: Task) -> list[Problem]:
    """Everything in the spec that a task's own way of TRL does not go with."""
    return [] if task.trl is None else [*find_wrong_training(spec, task, task.trl), *find_rollout_methods(spec, task), *find_untooled(spec, task.trl)]


def find_wrong_training(spec: RunSpec, task: Task, rollouts: TRLRollouts) -> Iterator[Problem]:
    training, way = spec.training, f"{task.name} is answered through {rollouts.argument_name} of TRL's GRPOTrainer"
    if training.trainer != "grpo":
        yield Problem("training.trainer", training.trainer, way, "train GRPO, or choose another task")
    if isinstance(training, GroupRollouts) and training.uses_vllm:
        yield Problem("training.generation", training.generation, f"{way}, which is sampled with transformers here", "use transformers")
    if spec.resources.processes > 1:
        message = f"{way}, which has not been seen to train the same in several processes"
        yield Problem("resources.processes", spec.resources.processes, message, "use 1")


def find_rollout_methods(spec: RunSpec, task: Task) -> Iterator[Problem]:
    entries = entries_for(spec)
    for place, choice in enumerate(spec.methods):
        if "rollout" in entries.get(choice.name, {}).get("hooks", ()):
            message = f"decides how completions are generated, and {task.name} brings its own way"
            yield Problem(f"methods.{place}.name", choice.name, message, "remove it, or choose another task")


def find_untooled(spec: RunSpec, rollouts: TRLRollouts) -> Iterator[Problem]:
    """A chat template, where it is on this machine, that says nothing of calls."""
    template = template_of(spec.policy)
    if rollouts.calls_tools and template is not None and datasets.TOOL_CALLS not in template:
        field, value = name_policy(spec.policy)
        yield Problem(field, value, "its chat template does not render calls of tools", "use a model that calls tools")


def name_policy(policy: Policy) -> tuple[str, str]:
    """The field of a spec that chooses the policy, and what stands in it."""
    if isinstance(policy, TinyPolicy):
        return "policy.kind", policy.kind
    if isinstance(policy, HubPolicy):
        return "policy.name", policy.name
    return ("policy.path", policy.path) if isinstance(policy, FolderPolicy) else ("policy.folder", policy.folder)


def find_wrong_data(task: Task, examples: Sequence[Example]) -> Iterator[Problem]:
    """Of the examples, data that TRL cannot hand on, and environments there are none of."""
    if task.trl is None:
        return
    taken = sorted({key for example in examples for key in example.data} & (RESERVED | RESERVED_LOGS))
    if taken:
        yield Problem("task.name", task.name, f"its examples' data has the key {taken[0]}, which TRL uses itself", "rename it in the task")
    names = set(task.trl.factories) - {""}
    asked = {str(example.data.get(ENVIRONMENT)) for example in examples} if names else set()
    if unknown := sorted(asked - names):
        message = f"an example's data asks for the {ENVIRONMENT} {unknown[0]}"
        yield Problem("task.name", task.name, message, f"its environment_factory has {', '.join(sorted(names))}")
