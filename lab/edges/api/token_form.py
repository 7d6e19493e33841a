"""The form of a new access token: what it may do, and until when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.utils import timezone

from lab.edges.api.base import SCOPES
from lab.edges.api.tokens import NAME_LENGTH, SERVICE_ROLES
from lab.teams.accounts.permissions import ADMINS, TABLE, is_role_allowed

DAYS = {"7": "7 days", "30": "30 days", "90": "90 days", "365": "a year"}
NEVER = "never"
GROUPS = {
    "runs": "Runs",
    "rollouts": "Rollouts",
    "label": "Labelling",
    "datasets": "Datasets",
    "members": "People",
    "audit": "Audit log",
    "lab": "Inbox and own alerts",
}
READING = ("runs.read", "label.see", "datasets.read", "policies.read")
PRESETS = {  # what a link of the form ticks
    "reading": ("Reading", READING),
    "training": ("Launching and reading", (*READING, "runs.launch")),
    "labelling": ("Labelling", ("label.see", "label.work")),
    "sending": ("Sending external runs", ("runs.send",)),
}


# What somebody says or answers for, or what is theirs: a service token cannot.
OF_PEOPLE = ("label.work", "rollouts.annotate", "datasets.recall", "policies.promote", "lab.enter", "alerts.rules")


@dataclass(frozen=True)
class ScopeGroup:
    label: str
    scopes: list[tuple[str, str, bool]]  # name, words, ticked


class TokenForm(forms.Form):
    name = forms.CharField(
        max_length=NAME_LENGTH,
        help_text="Who or what uses it, so that you know what stops working when you revoke it.",
        error_messages={"required": "Enter a name: who or what uses it."},
    )
    days = forms.ChoiceField(label="Valid for", initial="90")
    role = forms.ChoiceField(choices=[(role.value, role.label) for role in SERVICE_ROLES], initial="researcher", required=False)
    scopes = forms.MultipleChoiceField(error_messages={"required": "Select at least one scope."})

    def __init__(self, role: str, service: bool, data: Any = None, preset: str = "", initial: dict[str, Any] | None = None) -> None:
        super().__init__(data, initial=initial)
        self.service, self.acting = service, role
        self.preset = PRESETS.get(preset, ("", ()))[1]
        self.offered = [name for name in TABLE if name in SCOPES and (name not in OF_PEOPLE if service else is_role_allowed(role, name))]
        self.fields["scopes"].choices = [(name, name) for name in self.offered]  # type: ignore[attr-defined]
        lasting = role in ADMINS
        self.fields["days"].choices = [*DAYS.items(), *([(NEVER, "no expiry")] if lasting else [])]  # type: ignore[attr-defined]
        if not service:
            del self.fields["role"]

    @property
    def presets(self) -> list[tuple[str, str]]:
        return [(name, label) for name, (label, scopes) in PRESETS.items() if all(scope in self.offered for scope in scopes)]

    @property
    def groups(self) -> list[ScopeGroup]:
        ticked = self.data.getlist("scopes") if self.is_bound else self.preset  # type: ignore[attr-defined]
        groups: dict[str, ScopeGroup] = {}
        for name in self.offered:
            first = name.split(".")[0]
            label = GROUPS.get(first, first.capitalize())
            groups.setdefault(label, ScopeGroup(label, [])).scopes.append((name, TABLE[name].words, name in ticked))
        return list(groups.values())

    def clean_name(self) -> str:
        return " ".join(str(self.cleaned_data["name"]).split())

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        role = given.get("role", "")
        if self.service and not role:
            self.add_error("role", "Choose the role it acts with.")
        elif self.service:
            beyond = [name for name in given.get("scopes", []) if not is_role_allowed(role, name)]
            if beyond:
                self.add_error("scopes", f"The role {role} does not allow {', '.join(beyond)}: remove the scope or choose another role.")
        return given

    def expires_at(self) -> datetime | None:
        days = self.cleaned_data["days"]
        return None if days == NEVER else timezone.now() + timedelta(days=int(days))
