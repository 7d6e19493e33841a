"""A question as the trainers' command takes it: the run's spec with another recipe, and the stored rollouts. The contract is docs/run-files.md."""

from __future__ import annotations

import base64
import json
import logging
from typing import Any

from django.db import transaction
from kombu.exceptions import OperationalError

from lab.celery import app
from lab.lib.refusals import Refusal
from lab.rollouts.replay.batch_span import select_batch_rollouts
from lab.rollouts.replay.models import Replay
from lab.rollouts.trajectories.models import RolloutTokens
from lab.training.runs.models import Run
from lab.training.workers.models import ANALYSIS

log = logging.getLogger(__name__)

READ = ("recipe", "lora", "task", "human", "training", "seed")  # of a stored spec; its policy, dataset and folders are not looked at
ARRAYS = ("ids", "lengths", "logprobs", "entropies", "mask", "reference_logprobs")


MOST_ROLLOUTS = 4096


def spec_of(run: Run, base: Any, methods: Any, weights: dict[str, float]) -> dict[str, Any]:
    """The spec to replay."""
    spec = {key: run.spec[key] for key in READ if run.spec.get(key) is not None}
    spec |= {"base": base, "methods": methods, "output": "-"}
    if run.spec.get("dataset"):
        spec["dataset"] = {"path": "-"}
    task = spec.get("task") or {}
    return {**spec, "task": {**task, "rewards": {**(task.get("rewards") or {}), **weights}}}


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
    transaction.on_commit(lambda: send_replay_task(str(replay.pk)))


def send_replay_task(replay_id: str) -> None:
    try:
        app.send_task("replay", args=[replay_id], queue=ANALYSIS)
    except OperationalError as error:
        log.warning("replay %s waits in the database, Redis cannot be told: %s", replay_id, error)
