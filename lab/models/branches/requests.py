"""Asking for alternatives and branches: what a person may ask, and telling a worker; stopping and deleting."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeVar

from django import forms
from django.db import transaction
from django.db.models.functions import Now

from lab.lib.numbers import MAX_ID, MAX_INTEGER
from lab.lib.refusals import Refusal
from lab.models.branches.models import Branch, Choice, PlaceQuestion, TokenAlternatives
from lab.models.branches.offered import OfferedCheckpoint, list_offered_checkpoints
from lab.models.branches.places import MOST_NEW, MOST_TOTAL, StoredPlace, find_stored_place, read_temperature
from lab.models.playground.models import SamplingStatus
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import User
from lab.teams.audit.recording import record_audit_entry
from lab.training.workers.messages import send_task_message

MOST_COUNT = 16
SHOWN_TEXT = 200  # characters of a token that are kept with the branch
FRESH = timedelta(hours=1)  # an answer about the same place is not asked for again
Asked = TypeVar("Asked", bound=PlaceQuestion)


class PlaceForm(forms.Form):
    """A token of the rollout and the checkpoint to ask; names the field and the fix."""

    token = forms.IntegerField(label="Token", min_value=0, max_value=MAX_INTEGER)
    checkpoint = forms.IntegerField(label="Checkpoint", min_value=1, max_value=MAX_ID)

    def __init__(self, rollout: Rollout, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(data)
        self.rollout = rollout
        self.place: StoredPlace | None = None
        self.offer: OfferedCheckpoint | None = None

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if given.get("token") is not None:
            try:
                self.place = find_stored_place(self.rollout, given["token"])
            except Refusal as error:
                self.add_error("token", str(error))
        if given.get("checkpoint") is not None:
            offered = {one.checkpoint.pk: one for one in list_offered_checkpoints(self.rollout)}
            self.offer = offered.get(given["checkpoint"])
            if self.offer is None:
                self.add_error("checkpoint", "This rollout cannot be branched from it, or its files are gone; choose another one.")
        return given

    def about_place(self) -> dict[str, Any]:
        """Fields of a PlaceQuestion. The form must be valid."""
        assert self.place
        assert self.offer
        about = {"place": self.place.index, "checkpoint": self.offer.checkpoint, "label": self.offer.label[:200], "behind": self.offer.behind}
        return {"team": self.rollout.run.team, "rollout": self.rollout, **about}


class AlternativesForm(PlaceForm):
    def ask(self, user: User | None) -> TokenAlternatives:
        """A question of the last hour about the same place is used again. The form must be valid."""
        about = {**self.about_place(), "temperature": read_temperature(self.rollout)}
        same = TokenAlternatives.objects.filter(**{name: value for name, value in about.items() if name not in ("label", "behind")})
        with transaction.atomic():
            Rollout.objects.select_for_update(no_key=True).same_row(self.rollout).get()
            same.lose()
            known = same.filter(created_at__gt=Now() - FRESH).exclude(status__in=(SamplingStatus.FAILED, SamplingStatus.STOPPED))
            if (asked := known.order_by("-created_at").first()) is not None:
                return asked
            return enqueue_question("alternatives", TokenAlternatives.objects.create(user=user, **about))


class BranchForm(PlaceForm):
    choice = forms.ChoiceField(label="Token at this place", choices=Choice.choices)
    alternative = forms.IntegerField(label="Alternative", min_value=0, max_value=MAX_INTEGER, required=False)
    count = forms.IntegerField(label="Continuations", min_value=1, max_value=MOST_COUNT)
    temperature = forms.FloatField(label="Temperature", min_value=0, max_value=5, help_text="0 is greedy decoding.")
    max_tokens = forms.IntegerField(label="Max new tokens", min_value=1, max_value=MOST_NEW)
    seed = forms.IntegerField(label="Seed", min_value=0, max_value=MAX_INTEGER, help_text="The same seed gives the same continuations.")

    def clean(self) -> dict[str, Any]:
        given = super().clean()
        if given.get("choice") == Choice.TOKEN and given.get("alternative") is None and "alternative" not in self.errors:
            self.add_error("alternative", "Choose a token, or let the policy choose.")
        if given.get("temperature") == 0 and (given.get("count") or 1) > 1:
            self.add_error("count", "At temperature 0 all continuations are the same: set 1, or raise the temperature.")
        if self.place and given.get("count") and given.get("max_tokens"):
            total = given["count"] * (self.place.index + 1 + given["max_tokens"])
            if total > MOST_TOTAL:
                self.add_error("count", f"{total:,} tokens at once, at most {MOST_TOTAL:,}: set fewer continuations or fewer new tokens.")
        return given

    def ask(self, user: User | None) -> Branch:
        """Stores the branch and tells a worker. The form must be valid."""
        given, place = self.cleaned_data, self.place
        assert place
        chosen = {Choice.TOKEN: given["alternative"], Choice.KEEP: place.token, Choice.POLICY: None}[Choice(given["choice"])]
        settings = {name: given[name] for name in ("choice", "count", "temperature", "max_tokens", "seed")}
        texts = {"sampled_text": place.text[:SHOWN_TEXT], "chosen_text": place.text[:SHOWN_TEXT] if chosen == place.token else ""}
        with transaction.atomic():
            branch = Branch.objects.create(user=user, chosen=chosen, **self.about_place(), **settings, **texts)
            record_audit_entry("branch.start", branch, actor=user, rollout=self.rollout.pk, token=place.index, checkpoint=branch.label)
            return enqueue_question("branch", branch)


def enqueue_question(task: str, question: Asked) -> Asked:
    """Tells the workers once the transaction is committed."""
    transaction.on_commit(lambda: send_task_message(task, question.pk))
    return question


def stop_branch(branch: Branch) -> bool:
    """Whether it was open; continuations so far are kept, without a score."""
    with transaction.atomic():
        stopped = branch.stop()
        if stopped:
            record_audit_entry("branch.stop", branch)
    return stopped


def delete_branch(branch: Branch) -> None:
    """Raises Refusal while continuations stand in labelling queues: labels name the branch as where they come from."""
    with transaction.atomic():
        locked = Branch.objects.select_for_update().same_row(branch).get()
        if queued := locked.continuations.exclude(rollout=None).count():
            words = f"{queued} continuation{'s are' if queued > 1 else ' is'} in a labelling queue, and datasets made from it name this branch."
            raise Refusal(f"{words} It stays until the run is deleted.")
        record_audit_entry("branch.delete", locked, rollout=locked.rollout_id)
        locked.stop()
        locked.delete()
