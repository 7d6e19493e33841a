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
            join_request = JoinRequest.objects.create(team=team, user=user, message=message.strip()[:300])
            record_audit_entry("join.ask", join_request, actor=user, label=user.email)
    except IntegrityError:  # asked already
        return


def select_join_requests(team: Team) -> QuerySet[JoinRequest]:
    requests = JoinRequest.objects.filter(team=team, answered_at=None, user__is_active=True)
    return requests.select_related("user").order_by("created_at")


def answer_join_request(join_request: JoinRequest, by: User, role: str = "") -> None:
    """Lets the person in with ``role``, or refuses without one. Raises Refusal."""
    with transaction.atomic():
        lock_team(join_request.team)
        actor = require_manager(join_request.team, by)
        pending = select_join_requests(join_request.team).filter(pk=join_request.pk).first()
        if pending is None:
            raise Refusal("This request has been answered or withdrawn.", "Reload the page.")
        if role:
            may_give(actor, role)
            member, created = Membership.objects.get_or_create(team=join_request.team, user=pending.user, defaults={"role": Role(role)})
            if not created and not member.active:
                raise Refusal("This person is deactivated in the team.", "Reactivate them in the list of members instead.")
            if created:
                record_audit_entry(
                    "member.join", member, team=join_request.team, actor=pending.user, label=pending.user.email, role=role, let_in_by=by.email
                )
        pending.answered_at, pending.answered_by, pending.accepted = timezone.now(), by, bool(role)
        pending.save(update_fields=["answered_at", "answered_by", "accepted"])
        record_audit_entry("join.answer", pending, team=join_request.team, actor=by, label=pending.user.email, accepted=bool(role), role=role)
