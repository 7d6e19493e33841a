"""Samples that people shall label become rollouts of the run whose checkpoint wrote them: lines of its spool, ingested like any other.

Their phase is ``play`` and their step the checkpoint's, so that charts and measurements of training never count them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal

import numpy as np
from django.db import transaction
from django.db.models import Max

from lab.labelling.labels.models import Kind, Queue
from lab.labelling.labels.new_queues import NewItem, make_queue
from lab.lib.refusals import Refusal
from lab.models.playground.models import Sample, Sampling, SamplingStatus, Side
from lab.rollouts.trajectories.models import Rollout as Stored
from lab.supervision.supervisor.ingest import ingest_spool
from lab.teams.accounts.models import User
from lab.training.runs.models import Run
from trainers.contract import arrays, spool
from trainers.contract.events import Message, Rollout

PHASE: Literal["play"] = "play"


def to_queue(sampling: Sampling, user: User | None) -> Queue:
    """The queue of this sampling, made when it has none: both sides' answers as blind pairs, or one side's as single answers. Raises Refusal."""
    with transaction.atomic():
        locked = Sampling.objects.select_for_update().same_row(sampling).get()
        if locked.queue is not None:
            return locked.queue
        if locked.status not in (SamplingStatus.FINISHED, SamplingStatus.STOPPED):
            raise Refusal("Wait until sampling has finished, or stop it.")
        sides = list(locked.sides.select_related("checkpoint__run"))
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
    """Writes the samples to the run's spool and ingests them; each learns which rollout it is. Raises Refusal."""
    if side.checkpoint is None:
        raise Refusal(f"{side.label} was deleted; sample from another checkpoint.")
    run = sampling.team.runs.select_for_update().get(pk=side.checkpoint.run_id)
    if run.is_open or run.outside:
        raise Refusal(f"#{run.number} is {run.status}: its answers can be labelled once it has ended.")
    step, path = side.checkpoint.step, run.folder / spool.SPOOL
    theirs = Stored.objects.filter(run=run, phase=PHASE, step=step)
    newest = theirs.aggregate(newest=Max("group"))["newest"]
    group = 0 if newest is None else newest + 1
    spool.cut_torn_tail(path)
    with path.open("ab") as file:
        file.write(b"".join(spool.encoder.encode(build_rollout_event(sampling, sample, run, step, group)) + b"\n" for sample in samples))
    while ingest_spool(run) is not None:
        pass
    known = dict(theirs.filter(group=group).values_list("sample", "pk"))
    for sample in samples:
        sample.rollout = known[sample.number]
    Sample.objects.bulk_update(samples, ["rollout"])


def build_rollout_event(sampling: Sampling, sample: Sample, run: Run, step: int, group: int) -> Rollout:
    entropies = arrays.unpack_array(bytes(sample.entropies)).astype(np.float64)
    return Rollout(
        attempt=max(run.attempt, 1),
        time=time.time(),
        step=step,
        phase=PHASE,
        group=group,
        sample=sample.number,
        prompt=[Message(message["role"], message["content"]) for message in sampling.prompt],
        completion=sample.text,
        rewards={},
        reward=None,
        finish_reason="stop" if sample.finish_reason == "stop" else "length",
        length=sample.tokens,
        mean_entropy=float(entropies.mean()),
        max_entropy=float(entropies.max()),
        ids=bytes(sample.ids),
        lengths=bytes(sample.lengths),
        logprobs=bytes(sample.logprobs),
        entropies=bytes(sample.entropies),
    )
