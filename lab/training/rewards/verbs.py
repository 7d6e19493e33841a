"""What people do to reward functions: create, make a version, rename, archive. Each is in the audit log."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from lab.lib.refusals import Refusal
from lab.teams.accounts.models import Team, User
from lab.teams.accounts.permissions import explain_role_refusal, is_role_allowed
from lab.teams.audit.recording import record_audit_entry
from lab.training.rewards.definition_check import contains_code
from lab.training.rewards.models import NAME_LENGTH, NOTE_LENGTH, RewardFunction, RewardVersion

CODE = "rewards.code"


def require_code_permission(role: str, team: Team, definition: dict[str, Any]) -> None:
    """Raises Refusal where a part is Python and the role may not write any."""
    if not is_role_allowed(role, CODE) and contains_code(definition):
        raise Refusal(explain_role_refusal(CODE, role, str(team)), field="definition", status=403)


def clean_function_name(team: Team, name: str, function: RewardFunction | None = None) -> str:
    """Raises Refusal."""
    name = " ".join(name.replace("\0", "").split())
    if not name:
        raise Refusal("Enter a name.", field="name", status=422)
    if len(name) > NAME_LENGTH:
        raise Refusal(f"The name has {len(name)} characters.", f"Use at most {NAME_LENGTH}.", "name", status=422)
    taken = RewardFunction.objects.of(team).filter(name=name)
    if (taken.exclude(pk=function.pk) if function else taken).exists():
        raise Refusal("Your team has a reward function of this name.", "Choose another, or make a version of that one.", "name", status=409)
    return name


def create_function(team: Team, user: User | None, name: str, definition: dict[str, Any], note: str = "") -> RewardVersion:
    """``definition`` has been checked. Raises Refusal."""
    with transaction.atomic():
        Team.objects.select_for_update(no_key=True).get(pk=team.pk)  # of two of one name the second is told so
        function = RewardFunction.objects.create(team=team, name=clean_function_name(team, name), created_by=user)
        version: RewardVersion = function.versions.create(number=1, definition=definition, note=note[:NOTE_LENGTH], created_by=user)
        record_audit_entry("reward.create", function, name=function.name)
    return version


def add_version(function: RewardFunction, user: User | None, definition: dict[str, Any], note: str = "") -> RewardVersion:
    """Raises Refusal where nothing changed."""
    with transaction.atomic():
        locked = RewardFunction.objects.same_row(function).select_for_update().get()
        newest = locked.versions.first()
        assert newest is not None
        if newest.definition == definition:
            raise Refusal(f"Nothing changed since version {newest.number}.", "Change the function, then save.", "definition", status=409)
        version: RewardVersion = locked.versions.create(number=newest.number + 1, definition=definition, note=note[:NOTE_LENGTH], created_by=user)
        RewardFunction.objects.same_row(function).update(changed_at=Now(), archived_at=None)
        record_audit_entry("reward.version", function, version=version.number)
    return version


def rename_function(function: RewardFunction, name: str) -> None:
    """Raises Refusal."""
    with transaction.atomic():
        Team.objects.select_for_update(no_key=True).get(pk=function.team_id)
        name, before = clean_function_name(function.team, name, function), function.name
        if name != before:
            RewardFunction.objects.same_row(function).update(name=name)
            function.name = name
            record_audit_entry("reward.rename", function, before=before, name=name)


def archive_function(function: RewardFunction) -> None:
    """It is no longer offered; runs and tasks keep their copies."""
    with transaction.atomic():
        if RewardFunction.objects.same_row(function).filter(archived_at=None).update(archived_at=Now()):
            record_audit_entry("reward.archive", function)


def restore_function(function: RewardFunction) -> None:
    with transaction.atomic():
        if RewardFunction.objects.same_row(function).exclude(archived_at=None).update(archived_at=None):
            record_audit_entry("reward.restore", function)
