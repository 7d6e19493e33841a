"""Asking to be let into a team, where the team accepts that. Nobody learns from the answer whether a team exists or accepts requests."""

from __future__ import annotations

from datetime import timedelta

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from lab.lib.refusals import Refusal
from lab.teams.accounts.models import JoinRequest, Membership, Role, Team, User
from lab.teams.audit.recording import record_audit_entry
from lab.teams.people.member_rules import lock_team, may_give, require_manager

MOST_OPEN = 5  # unanswered requests of one person
QUIET = timedelta(days=7)  # after a refusal, asking again reaches nobody
SAID = "If a team has this address and accepts requests, its admins can now see yours. If they approve it, the team appears here."


def create_join_request(user: User, slug: str, message: str) -> None:
    """Leaves a request, or nothing: the person is told the same either way."""
    team = Team.objects.filter(slug=slug.strip().lower(), join_requests=True).first()
    if team is None or Membership.objects.filter(team=team, user=user).exists():
        return
    mine = JoinRequest.across_teams.filter(user=user)
    refused = mine.filter(team=team, accepted=False, answered_at__gt=timezone.now() - QUIET)
    if mine.filter(answered_at=None).count() >= MOST_OPEN or refused.exists():
        return
    try:
        with transaction.atomic():
            asked = JoinRequest.objects.create(team=team, user=user, message=message.strip()[:300])
            record_audit_entry("join.ask", asked, actor=user, label=user.email)
    except IntegrityError:  # asked already
        return


def select_join_requests(team: Team) -> QuerySet[JoinRequest]:
    found = JoinRequest.objects.filter(team=team, answered_at=None, user__is_active=True)
    return found.select_related("user").order_by("created_at")


def answer_join_request(asked: JoinRequest, by: User, role: str = "") -> None:
    """Lets the person in with ``role``, or refuses without one. Raises Refusal."""
    with transaction.atomic():
        lock_team(asked.team)
        actor = require_manager(asked.team, by)
        found = select_join_requests(asked.team).filter(pk=asked.pk).first()
        if found is None:
            raise Refusal("This request has been answered or withdrawn.", "Reload the page.")
        if role:
            may_give(actor, role)
            member, made = Membership.objects.get_or_create(team=asked.team, user=found.user, defaults={"role": Role(role)})
            if not made and not member.active:
                raise Refusal("This person is deactivated in the team.", "Reactivate them in the list of members instead.")
            if made:
                record_audit_entry("member.join", member, team=asked.team, actor=found.user, label=found.user.email, role=role, let_in_by=by.email)
        found.answered_at, found.answered_by, found.accepted = timezone.now(), by, bool(role)
        found.save(update_fields=["answered_at", "answered_by", "accepted"])
        record_audit_entry("join.answer", found, team=asked.team, actor=by, label=found.user.email, accepted=bool(role), role=role)
