"""A question as the trainers' command takes it: the run's spec with another recipe, and the stored rollouts. The contract is docs/run-files.md."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from django.db import transaction

from lab.lib.refusals import Refusal
from lab.rollouts.replay.batch_span import select_batch_rollouts, select_trained_rollouts
from lab.rollouts.replay.models import Replay
from lab.rollouts.trajectories.models import RolloutTokens
from lab.training.catalog.catalog import Catalog
from lab.training.runs.models import Run
from lab.training.workers.messages import send_task_message
from trainers.contract.spec import Problem, SpecError, parse_spec
from trainers.contract.stacking import DEFAULT_BASES, check_stack

READ = ("recipe", "lora", "task", "human", "training", "seed")  # of a stored spec; its policy, dataset and folders are not looked at
ARRAYS = ("ids", "lengths", "logprobs", "entropies", "mask", "reference_logprobs")


MOST_ROLLOUTS = 4096
TRAINER = "grpo"
REPLAYED = frozenset({"rewards", "advantages", "token_weights"})  # hooks
WITHOUT_TOKENS = "has rollouts that came without tokens, and methods act on tokens"
HIDDEN = "It needs hidden states of the policy, which are not stored, so it cannot be replayed: remove it."


def spec_of(run: Run, base: Any, methods: Any, weights: dict[str, float]) -> dict[str, Any]:
    """The spec to replay."""
    spec = {key: run.spec[key] for key in READ if run.spec.get(key) is not None}
    spec |= {"base": base, "methods": methods, "output": "-"}
    if run.spec.get("dataset"):
        spec["dataset"] = {"path": "-"}
    task = spec.get("task") or {}
    return {**spec, "task": {**task, "rewards": {**(task.get("rewards") or {}), **weights}}}


def find_recipe_problems(run: Run, catalog: Catalog, base: Any, methods: Any, weights: Mapping[str, float]) -> list[Problem]:
    """Why the run's rollouts cannot be put through this recipe, as far as its spec and the catalogue tell."""
    try:
        return list(check_stack(parse_spec(spec_of(run, base, methods, dict(weights))), catalog.methods_by_name).problems)
    except SpecError as error:
        return list(error.problems)


def needs_hidden_states(method: Mapping[str, Any] | None) -> bool:
    """Whether a method's replayed hooks read hidden states of the policy, which are not stored."""
    return method is not None and "hidden" in method.get("needs", ()) and bool(REPLAYED & set(method["hooks"]))


def lacks_token_ids(run: Run) -> bool:
    """Whether the run's newest training rollout has none: it came without, as those of other frameworks do, or they were dropped. Methods act on
    tokens.
    """
    newest = select_trained_rollouts(run).order_by("-step", "-pk").values_list("pk", flat=True).first()
    return newest is not None and not RolloutTokens.objects.filter(rollout=newest, rollout__run=run).exclude(ids=b"").exists()


def prepare_question(
    run: Run, catalog: Catalog, step: int, group: int | None, base: Any, methods: Any, weights: Mapping[str, float]
) -> tuple[Replay | None, list[Problem]]:
    """The question, not saved, or all that has to change. ``base`` and ``methods``: None is the run's own."""
    if run.trainer != TRAINER:
        return None, [
            Problem("run", str(run.number), f"was trained by {run.trainer}, which has no advantages", f"choose a run of the trainer {TRAINER}")
        ]
    if lacks_token_ids(run):
        return None, [Problem("run", str(run.number), WITHOUT_TOKENS, "send it with its tokens: docs/formats.md")]
    base = base or run.spec.get("base") or {"name": DEFAULT_BASES[TRAINER], "config": {}}
    methods = (run.spec.get("methods") or []) if methods is None else methods
    problems = []
    rollouts = select_trained_rollouts(run).filter(step=step)
    if not rollouts.exists():
        problems.append(Problem("step", str(step), "has no training rollouts", "choose another step"))
    elif group is not None and not rollouts.filter(group=group).exists():
        problems.append(Problem("group", str(group), f"step {step} has no such group", "choose another group, or none"))
    known = {reward["name"] for task in catalog.tasks if task["name"] == run.task for reward in task["rewards"]}
    fix = f"use {', '.join(sorted(known))}"
    problems += [Problem(f"weights.{name}"[:100], name, "the task has no such reward function", fix) for name in sorted(weights.keys() - known)]
    problems += find_recipe_problems(run, catalog, base, methods, {name: weight for name, weight in weights.items() if name in known})
    names = [("base", base), *((f"methods.{index}", method) for index, method in enumerate(methods))]
    problems += [Problem(place, part["name"], HIDDEN, "") for place, part in names if needs_hidden_states(catalog.methods_by_name.get(part["name"]))]
    if problems:
        return None, problems
    return Replay(team=run.team, run=run, step=step, group=group, base=base, methods=methods, weights=dict(weights)), []


def request_of(replay: Replay) -> bytes:
    """The request as JSON. Raises Refusal."""
    rollouts = list(select_batch_rollouts(replay.run, replay.step).select_related("prompt")[: MOST_ROLLOUTS + 1])
    if len(rollouts) > MOST_ROLLOUTS:
        raise Refusal(f"More than {MOST_ROLLOUTS:,} rollouts were sampled together in this step, too many to replay.")
    tokens = RolloutTokens.objects.filter(rollout__in=rollouts).in_bulk()
    sent: list[dict[str, Any]] = []
    for order, rollout in enumerate(rollouts):
        own = tokens.get(rollout.pk)
        sent.append(
            {
                "id": rollout.pk,
                "step": rollout.step,
                "group": rollout.group,
                "sample": rollout.sample,
                "order": order,
                "prompt": rollout.prompt.messages,
                "reference": rollout.prompt.reference,
                "completion": rollout.completion,
                "rewards": rollout.rewards,
                "finish_reason": rollout.finish_reason,
                **{name: base64.b64encode(bytes(getattr(own, name)) if own else b"").decode() for name in ARRAYS},
            }
        )
    spec = spec_of(replay.run, replay.base, replay.methods, replay.weights)
    return json.dumps({"spec": spec, "rollouts": sent}).encode()


def enqueue_replay(replay: Replay) -> None:
    """Tells the workers once the transaction is committed. A message that cannot be sent now is sent by the next worker's sweep."""
    transaction.on_commit(lambda: send_task_message("replay", replay.pk))
