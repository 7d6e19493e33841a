"""Samples that people shall label become rollouts of the run whose checkpoint wrote them: lines of its spool, ingested like any other.

Their phase is ``play`` and their step the checkpoint's, so that charts and measurements of training never count them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal, TypeVar, cast

import numpy as np
from django.db import transaction
from django.db.models import Max

from lab.labelling.labels.models import Kind, Queue
from lab.labelling.labels.new_queues import NewItem, make_queue
from lab.lib.refusals import Refusal
from lab.models.playground.models import Sample, Sampling, SamplingStatus, Side, WrittenCompletion
from lab.rollouts.trajectories.models import Rollout as Stored
from lab.supervision.supervisor.ingest import ingest_spool
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Checkpoint, Run
from lab.training.runs.spool_files import begin_spool_here, is_spool_here
from trainers.contract import arrays, spool
from trainers.contract.events import Message, Rollout, Turn

PHASE: Literal["play"] = "play"
Written = TypeVar("Written", bound=WrittenCompletion)


def to_queue(sampling: Sampling, user: User | None) -> Queue:
    """The queue of this sampling, made when it has none: both sides' answers as blind pairs, or one side's as single answers. Raises Refusal."""
    with transaction.atomic():
        locked = Sampling.objects.select_for_update().same_row(sampling).get()
        if locked.queue is not None:
            return locked.queue
        if locked.status not in (SamplingStatus.FINISHED, SamplingStatus.STOPPED):
            raise Refusal("Wait until sampling has finished, or stop it.")
        sides = list(locked.sides.select_related("checkpoint__run"))
        if any(side.is_steered for side in sides):
            raise Refusal("Steered completions are not labelled: they would count as the checkpoint's own.")
        written = [list(side.samples.exclude(tokens=0)) for side in sides]
        if not all(written):
            raise Refusal("One side has no completions: there is nothing to compare.")
        for side, samples in zip(sides, written, strict=True):
            store_samples_as_rollouts(locked, side, samples)
        prompt = Stored.objects.of(locked.team_id).values_list("prompt_id", flat=True).get(pk=written[0][0].rollout or 0)
        kind, groups = build_answer_groups(written)
        if not groups:
            raise Refusal("All answers are identical: there is nothing to compare.")
        items = [NewItem(prompt, rollouts) for rollouts in groups]
        name = f"Playground: {' against '.join(side.label for side in sides)}"[:100]
        locked.queue = make_queue(locked.team, user, name=name, kind=kind, items=items)
        locked.save(update_fields=["queue"])
    return locked.queue


def build_answer_groups(written: Sequence[Sequence[Sample]]) -> tuple[Kind, list[tuple[int, ...]]]:
    """What is asked of whom: of two sides the answers of the same number, of one its answers against each other, of one answer that answer."""
    if len(written) == 2:
        pairs = [(first, second) for first, second in zip(*written, strict=False) if first.text != second.text]
    elif len(written[0]) > 1:
        row = written[0]
        pairs = [(first, second) for index, first in enumerate(row) for second in row[index + 1 :] if first.text != second.text]
    else:
        return Kind.SINGLE, [(written[0][0].rollout or 0,)]
    return Kind.PAIR, [(first.rollout or 0, second.rollout or 0) for first, second in pairs]


def store_samples_as_rollouts(sampling: Sampling, side: Side, samples: Sequence[Sample]) -> None:
    """Raises Refusal."""
    prompt = [Message(message["role"], message["content"]) for message in sampling.prompt]
    store_as_rollouts(find_writer(sampling.team, side.checkpoint, side.label), samples, prompt)


def find_writer(team: Team, checkpoint: Checkpoint | None, label: str) -> tuple[Run, int]:
    """The run whose checkpoint wrote, locked, and the checkpoint's step. Raises Refusal when its spool cannot be written to."""
    if checkpoint is None:
        raise Refusal(f"{label} was deleted; sample from another checkpoint.")
    run = team.runs.select_for_update().get(pk=checkpoint.run_id)
    if run.is_open or run.outside:
        raise Refusal(f"#{run.number} is {run.status}: its answers can be labelled once it has ended.")
    return run, checkpoint.step


def store_as_rollouts(writer: tuple[Run, int], samples: Sequence[Written], prompt: list[Message], **fields: Any) -> None:
    """Writes the samples to the run's spool and ingests them; each learns which rollout it is. ``fields``: of all their events."""
    run, step = writer
    if not is_spool_here(run) and not begin_spool_here(run):
        raise Refusal(f"#{run.number} has begun to train again: its answers can be labelled once it has ended.")
    path = run.folder / spool.SPOOL
    theirs = Stored.objects.filter(run=run, phase=PHASE, step=step)
    newest = theirs.aggregate(newest=Max("group"))["newest"]
    place = {"step": step, "group": 0 if newest is None else newest + 1, "attempt": max(run.attempt, 1)}
    spool.cut_torn_tail(path)
    with path.open("ab") as file:
        file.write(b"".join(spool.encoder.encode(build_rollout_event(sample, prompt, **place, **fields)) + b"\n" for sample in samples))
    while ingest_spool(run) is not None:
        pass
    known = dict(theirs.filter(group=place["group"]).values_list("sample", "pk"))
    for sample in samples:
        sample.rollout = known[sample.number]
    type(samples[0]).objects.bulk_update(samples, ["rollout"])


def build_rollout_event(sample: WrittenCompletion, prompt: list[Message], **fields: Any) -> Rollout:
    mask = bytes(getattr(sample, "mask", b""))
    entropies = arrays.unpack_array(bytes(sample.entropies)).astype(np.float64)
    own = entropies[arrays.unpack_array(mask) > 0] if mask else entropies
    return Rollout(
        time=time.time(),
        phase=PHASE,
        sample=sample.number,
        prompt=prompt,
        completion=sample.text,
        rewards={},
        reward=None,
        finish_reason=cast(Any, sample.finish_reason if sample.finish_reason in ("stop", "turns") else "length"),
        length=len(own),
        mean_entropy=float(own.mean()),
        max_entropy=float(own.max()),
        turns=[Turn(*turn) for turn in getattr(sample, "turns", ())],
        ids=bytes(sample.ids),
        lengths=bytes(sample.lengths),
        logprobs=bytes(sample.logprobs),
        entropies=bytes(sample.entropies),
        mask=mask,
        **fields,
    )
