"""Asking checkpoints for completions: what a person may ask, and telling a worker.

With a steering vector one checkpoint is asked twice: as it is, and with the vector added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.db import transaction

from lab.lib.numbers import MAX_ID, MAX_INTEGER
from lab.lib.refusals import Refusal
from lab.models.playground.models import Sampling, Side
from lab.models.playground.steering import SteeringChoice, find_steering_vector, refuse_misfit
from lab.models.policies.checkpoint_paths import format_checkpoint_label, has_checkpoint_files
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Checkpoint
from lab.training.runs.stored_checkpoints import find_checkpoints_there
from lab.training.workers.messages import send_task_message
from trainers.contract.steering_file import MOST_ALPHA

PROMPT_LENGTH = 20_000
MOST_COUNT, MOST_TOKENS = 8, 2048
LABEL_LENGTH = 200  # of a side
OFFERED = 300  # checkpoints in the choice, newest first


def list_sampleable_checkpoints(team: Team) -> list[Checkpoint]:
    """What can be sampled from: the newest of the team whose files are there."""
    rows = list(Checkpoint.objects.of(team).select_related("run").order_by("-run__number", "-final", "-step", "-pk")[:OFFERED])
    seen, checkpoints, there = set[tuple[Any, str]](), list[Checkpoint](), find_checkpoints_there(team, rows)
    for checkpoint in rows:
        if (checkpoint.run_id, checkpoint.path) not in seen and checkpoint.pk in there:
            seen.add((checkpoint.run_id, checkpoint.path))
            checkpoints.append(checkpoint)
    return checkpoints


class AskForm(forms.Form):
    """The form of the page and the check behind the API: names the field and the fix."""

    first = forms.IntegerField(label="Checkpoint", min_value=1, max_value=MAX_ID, required=False)
    second = forms.IntegerField(label="Compare with", min_value=1, max_value=MAX_ID, required=False)
    vector = forms.IntegerField(label="Steering vector", min_value=1, max_value=MAX_ID, required=False)
    alpha = forms.FloatField(label="Strength (alpha)", min_value=-MOST_ALPHA, max_value=MOST_ALPHA, required=False, initial=0.0)
    system = forms.CharField(label="System message", max_length=PROMPT_LENGTH, required=False, strip=False)
    prompt = forms.CharField(label="Prompt", max_length=PROMPT_LENGTH, strip=False)
    count = forms.IntegerField(label="Samples per model", min_value=1, max_value=MOST_COUNT, initial=1)
    temperature = forms.FloatField(label="Temperature", min_value=0, max_value=5, initial=1.0, help_text="0 is greedy decoding.")
    top_p = forms.FloatField(label="Top-p", min_value=0.01, max_value=1, initial=1.0, help_text="1 samples from all tokens.")
    max_tokens = forms.IntegerField(label="Max completion tokens", min_value=1, max_value=MOST_TOKENS, initial=256)
    seed = forms.IntegerField(label="Seed", min_value=0, max_value=MAX_INTEGER, initial=0, help_text="The same seed gives the same completions.")

    def __init__(self, team: Team, data: Mapping[str, Any] | None = None, initial: Mapping[str, Any] | None = None) -> None:
        super().__init__(data, initial=dict(initial or {}))
        self.team = team
        self.chosen: list[Checkpoint] = []
        self.chosen_vector: SteeringChoice | None = None

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        self.choose_vector(given)
        if given.get("first") is None and self.chosen_vector is None and not {"first", "vector"} & self.errors.keys():
            self.add_error("first", "This field is required.")
        for field in ("first", "second"):
            if given.get(field) is None:
                continue
            checkpoint = Checkpoint.objects.of(self.team).filter(pk=given[field]).select_related("run").first()
            if checkpoint is None:
                self.add_error(field, "Your team has no such checkpoint; choose another one.")
            elif not has_checkpoint_files(checkpoint):
                self.add_error(field, "Its files are no longer on disk; choose another one.")
            elif checkpoint.pk in [other.pk for other in self.chosen]:
                self.add_error(field, "This is the same checkpoint twice; choose another one, or none.")
            else:
                self.chosen.append(checkpoint)
        self.fit_vector(given)
        if not str(given.get("prompt", "")).strip() and "prompt" not in self.errors:
            self.add_error("prompt", "Enter a prompt.")
        return given

    def choose_vector(self, given: dict[str, Any]) -> None:
        if given.get("vector") is None:
            return
        try:
            self.chosen_vector = find_steering_vector(self.team, given["vector"])
        except Refusal as problem:
            self.add_error("vector", str(problem))

    def fit_vector(self, given: dict[str, Any]) -> None:
        """The vector's own policy is asked where none is chosen."""
        if self.chosen_vector is None:
            return
        if given.get("second") is not None:
            self.add_error("second", "A steering vector compares one checkpoint with itself; choose None here, or no vector.")
        elif not self.chosen and "first" not in self.errors:
            self.chosen.append(self.chosen_vector.checkpoint)
        try:
            for checkpoint in self.chosen:
                refuse_misfit(self.chosen_vector, checkpoint)
        except Refusal as problem:
            self.add_error("vector", str(problem))

    def ask(self, user: User | None) -> Sampling:
        """Stores the question and tells a worker. The form must be valid."""
        given = self.cleaned_data
        messages = [{"role": "system", "content": given["system"]}] if given["system"].strip() else []
        messages.append({"role": "user", "content": given["prompt"]})
        settings = {name: given[name] for name in ("count", "temperature", "top_p", "max_tokens", "seed")}
        sides = [Side(checkpoint=checkpoint, label=format_checkpoint_label(checkpoint)[:LABEL_LENGTH]) for checkpoint in self.chosen]
        if self.chosen_vector is not None:
            sides.append(make_steered_side(self.chosen[0], self.chosen_vector.checkpoint, given["alpha"] or 0.0))
        return create_sampling(self.team, user, messages, sides, **settings)


def make_steered_side(checkpoint: Checkpoint, vector: Checkpoint, alpha: float) -> Side:
    added = f" · alpha {alpha:g} of the vector of #{vector.run.number}"
    label = format_checkpoint_label(checkpoint)[: LABEL_LENGTH - len(added)]
    return Side(checkpoint=checkpoint, vector=vector, alpha=alpha, label=label + added)


def create_sampling(team: Team, user: User | None, prompt: Sequence[Mapping[str, str]], sides: Sequence[Side], **settings: Any) -> Sampling:
    """``sides``: unsaved, in the order shown."""
    with transaction.atomic():
        sampling = Sampling.objects.create(team=team, user=user, prompt=[dict(message) for message in prompt], **settings)
        for place, side in enumerate(sides):
            side.sampling, side.place = sampling, place
        Side.objects.bulk_create(sides)
        transaction.on_commit(lambda: send_task_message("playground", sampling.pk))
    return sampling
