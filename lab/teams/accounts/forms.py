"""The form behind the set-up link; a person's name; who gets a mail to reset a password, and what follows from choosing one."""

from typing import Any

from allauth.account.forms import LoginForm, ResetPasswordForm, ResetPasswordKeyForm
from django import forms
from django.core.exceptions import ValidationError
from django.db import transaction

from lab.teams.accounts.address_proof import claim_account
from lab.teams.accounts.models import User
from lab.teams.accounts.setup_link import validate_owner_input

ADDRESS = "E-mail address"
PASSWORD_HELP = "At least 10 characters, not a common password, not only digits."


class SetupForm(forms.Form):
    name = forms.CharField(label="Your name", max_length=150, widget=forms.TextInput(attrs={"autocomplete": "name", "autofocus": True}))
    email = forms.EmailField(label=ADDRESS, widget=forms.EmailInput(attrs={"autocomplete": "email"}))
    password = forms.CharField(
        label="Password",
        strip=False,
        help_text=PASSWORD_HELP,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password", "minlength": "10"}, render_value=False),
    )
    team_name = forms.CharField(label="Team name", max_length=80, widget=forms.TextInput(attrs={"autocomplete": "organization"}))

    def clean(self) -> dict[str, Any]:
        """The set-up link's own checks, so that every problem shows at its field at once."""
        given = {name: self.cleaned_data.get(name, "") for name in ("email", "password", "team_name", "name")}
        try:
            validate_owner_input(**given)
        except ValidationError as error:
            for field, messages in error.message_dict.items():
                if field not in self.errors:
                    self.add_error(field, messages)
        return self.cleaned_data


def name_address_field(form: forms.Form, name: str) -> None:
    """By the words that all other pages have for it; no field repeats its label in grey, as allauth's do."""
    form.fields[name].label = ADDRESS
    for field in form.fields.values():
        field.widget.attrs.pop("placeholder", None)


class NameForm(forms.Form):
    name = forms.CharField(label="Name", max_length=150, widget=forms.TextInput(attrs={"autocomplete": "name", "class": "input"}))

    def save(self, user: User) -> None:
        user.first_name, _, user.last_name = self.cleaned_data["name"].partition(" ")
        user.save(update_fields=["first_name", "last_name"])


class SignInForm(LoginForm):  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        name_address_field(self, "login")


class ResetForm(ResetPasswordForm):  # type: ignore[misc]
    users: list[User]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        name_address_field(self, "email")

    def clean_email(self) -> str:
        """A link goes to the account's own address only: not to one a person has asked to change to, where a slip would hand over the account."""
        email = str(super().clean_email())
        self.users = [user for user in self.users if user.email.lower() == email.lower()]
        return email


class ChoosePasswordForm(ResetPasswordKeyForm):  # type: ignore[misc]
    """Behind the mailed link: with the new password an address that was not proved is, and what others may have set up falls, all or nothing."""

    def save(self) -> None:
        with transaction.atomic():
            super().save()
            claim_account(self.user)
