"""The one-time link that makes the first account of a new installation. There is no default password anywhere.

Only the token's hash is stored. A link works once, for a day, and only while nobody has an account; a newer link replaces an older one.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import connection, transaction
from django.urls import reverse
from django.utils import timezone
from django.utils.text import slugify

from lab.lib.refusals import Refusal
from lab.teams.accounts.demo_team import choose_free_slug, find_demo_team, list_people
from lab.teams.accounts.models import Membership, Role, SetupLink, Team, User

VALID = timedelta(hours=24)
LOCK = 0x1AB5E7  # PostgreSQL advisory lock: making and using the link happen one after the other


def hash_link_token(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def lock_setup() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])


def create_setup_link() -> str | None:
    """The path of a fresh link, or None when somebody has an account already."""
    token = secrets.token_urlsafe(32)
    with transaction.atomic():
        lock_setup()
        if list_people().exists():
            return None
        SetupLink.objects.all().delete()
        SetupLink.objects.create(digest=hash_link_token(token), expires_at=timezone.now() + VALID)
    return reverse("setup", args=[token])


def check_setup_link(token: str) -> None:
    """Raises Refusal unless ``consume_setup_link`` would accept this token now."""
    if list_people().exists():
        raise Refusal("This lab is already set up. Sign in, or ask one of its owners to invite you.", status=410)
    link = SetupLink.objects.filter(digest=hash_link_token(token)).first()
    if link is None:
        raise Refusal("This set-up link is not valid: a newer one has replaced it. Use the latest link printed in the terminal.", status=410)
    if link.expires_at <= timezone.now():
        raise Refusal("This set-up link has expired. Start the lab again (make up): it prints a new one.", status=410)


def consume_setup_link(token: str, email: str, password: str, team_name: str, name: str) -> User:
    """Creates the owner and the team, and uses up the link: all or nothing, and only for the first of several callers.

    Raises Refusal for the link and ValidationError, a message list for each field (email, password, team_name, name), for the rest.
    """
    with transaction.atomic():
        lock_setup()
        check_setup_link(token)
        validate_owner_input(email, password, team_name, name)
        SetupLink.objects.all().delete()
        first, _, last = name.strip().partition(" ")
        user = User.objects.create_superuser(email.strip(), password, first_name=first, last_name=last)
        team = Team.objects.create(name=team_name.strip(), slug=choose_free_slug(slugify(team_name)[:50] or "team"))
        Membership.objects.create(team=team, user=user, role=Role.OWNER)
        if demo := find_demo_team():
            Membership.objects.create(team=demo, user=user, role=Role.OWNER)
    return user


def validate_owner_input(email: str, password: str, team_name: str, name: str) -> None:
    """Raises ValidationError with the messages of every field."""
    problems: dict[str, list[str]] = {}
    try:
        validate_email(email.strip())
    except ValidationError as error:
        problems["email"] = error.messages
    try:
        validate_password(password, User(email=email, first_name=name))
    except ValidationError as error:
        problems["password"] = error.messages
    for field, value, limit in (("team_name", team_name.strip(), 80), ("name", name.strip(), 150)):
        if not value:
            problems[field] = ["This field is required."]
        elif len(value) > limit:
            problems[field] = [f"At most {limit} characters; this has {len(value)}."]
        elif "\0" in value:
            problems[field] = ["Null characters are not allowed."]
    if problems:
        raise ValidationError(problems)
