"""Forms of the team pages. What they accept has no null characters and fits its column; the verbs check the rest."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib.auth.password_validation import validate_password
from django.utils import timezone

from lab.teams.accounts.models import Membership, Role, Team, User
from lab.teams.accounts.second_factor import has_second_factor
from lab.teams.people.member_rules import list_givable_roles
from lab.teams.people.queue_assignment import open_queues

FRESH = timedelta(minutes=10)  # a sign-in so recent stands for a password, for who has none
WORDS = {
    Role.OWNER: "owner: everything an admin can do; transfers or deletes the team",
    Role.ADMIN: "admin: manages members, settings, quotas and alerts",
    Role.RESEARCHER: "researcher: launches runs, manages labelling, builds datasets",
    Role.ANNOTATOR: "annotator: sees only the labelling queues they are assigned to",
    Role.VIEWER: "viewer: sees everything, but cannot label or launch",
}


class InviteForm(forms.Form):
    email = forms.EmailField(label="E-mail address", max_length=254, widget=forms.EmailInput(attrs={"autocomplete": "off"}))
    role = forms.ChoiceField(label="Role", initial=Role.RESEARCHER)
    queues = forms.TypedMultipleChoiceField(
        label="Assign to queues",
        required=False,
        coerce=int,
        widget=forms.CheckboxSelectMultiple,
        error_messages={"invalid_choice": "One of these queues is no longer open. Check your selection."},
    )

    def __init__(self, data: Any, mine: Membership) -> None:
        super().__init__(data, auto_id="invite_%s")
        queues = open_queues(mine.team)
        self.fields["queues"].choices = queues  # type: ignore[attr-defined]
        if not queues and not (data and "queues" in data):
            del self.fields["queues"]
        self.fields["role"].choices = [(role, WORDS[Role(role)]) for role in list_givable_roles(mine)]  # type: ignore[attr-defined]


class NewAccountForm(forms.Form):
    """Of somebody invited who has no account. Raises nothing: every problem is shown at its field."""

    name = forms.CharField(label="Your name", max_length=150, widget=forms.TextInput(attrs={"autocomplete": "name", "autofocus": True}))
    password = forms.CharField(
        label="Password",
        strip=False,
        max_length=1000,
        help_text="The longer the better. Not a common password, not only digits, not similar to your name or address.",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}, render_value=False),
    )

    def __init__(self, data: Any, email: str) -> None:
        super().__init__(data)
        self.email = email

    def clean_password(self) -> str:
        password = str(self.cleaned_data["password"])
        first, _, last = self.cleaned_data.get("name", "").partition(" ")
        validate_password(password, User(email=self.email, first_name=first, last_name=last))
        return password


class TeamForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Team
        fields = ("name", "requires_mfa", "join_requests")
        labels = {
            "name": "Name",
            "requires_mfa": "Require a second factor",
            "join_requests": "Accept join requests from people with an account in this lab",
        }
        help_texts = {
            "requires_mfa": "Members without one must set it up before they can see the team. Open pages close immediately.",
            "join_requests": "Requests appear on the team's page. Requesters cannot find out whether the team exists.",
        }

    def __init__(self, data: Any, team: Team, user: User) -> None:
        super().__init__(data, instance=team)
        self.user, self.had_mfa = user, team.requires_mfa

    def clean_requires_mfa(self) -> bool:
        required = bool(self.cleaned_data["requires_mfa"])
        if required and not self.had_mfa and not has_second_factor(self.user):
            raise forms.ValidationError("Set up a second factor for your own account first; otherwise you would lock yourself out.")
        return required


class NewTeamForm(forms.Form):
    name = forms.CharField(label="Name of the team", max_length=80)


class JoinForm(forms.Form):
    team = forms.CharField(
        label="Address of the team", max_length=60, help_text="The part after /t/ in the URL of the team's pages. Ask a member.",
        widget=forms.TextInput(attrs={"autocapitalize": "off", "autocomplete": "off", "spellcheck": "false"}),
    )  # fmt: skip
    message = forms.CharField(label="Message to the admins", max_length=300, required=False)


class DeleteForm(forms.Form):
    name = forms.CharField(label="Name of the team", max_length=200, widget=forms.TextInput(attrs={"autocomplete": "off"}))


class TransferForm(forms.Form):
    member = forms.ChoiceField(label="New owner")
    password = forms.CharField(
        label="Your password",
        strip=False,
        max_length=1000,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}, render_value=False),
    )

    def __init__(self, data: Any, mine: Membership) -> None:
        super().__init__(data)
        others = Membership.objects.filter(team=mine.team_id, active=True, user__is_active=True).exclude(pk=mine.pk).select_related("user")
        self.people = {str(member.pk): member for member in others.order_by("user__email")}
        named = [(pk, f"{member.user}, {member.user.email} ({member.role})") for pk, member in self.people.items()]
        self.fields["member"].choices = [("", "Choose a member"), *named]  # type: ignore[attr-defined]
        self.user = mine.user
        if not self.user.has_usable_password():  # they come in by single sign-on
            del self.fields["password"]

    def clean(self) -> dict[str, Any]:
        seen = self.user.last_login
        if "password" not in self.fields and (seen is None or timezone.now() - seen > FRESH):
            raise forms.ValidationError("Sign out and in again, then transfer within ten minutes, to confirm that it is you.")
        return self.cleaned_data

    def clean_password(self) -> str:
        password = str(self.cleaned_data["password"])
        if not self.user.check_password(password):
            raise forms.ValidationError("Wrong password.")
        return password

    @property
    def heir(self) -> Membership:
        return self.people[self.cleaned_data["member"]]
