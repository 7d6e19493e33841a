"""Mails of this room: plain text, and nothing a person typed stands in a header but the team's name on one line."""

from __future__ import annotations

import logging

from django.core.mail import send_mail
from django.template.loader import render_to_string

from lab.teams.people.invitations import InvitationLinks

log = logging.getLogger(__name__)


def send_invitation(created: InvitationLinks) -> bool:
    """Whether the mail was handed over; the link works either way, so a failure is told and not raised."""
    team = " ".join(created.invitation.team.name.split())
    by = " ".join(str(created.invitation.invited_by or "").split())  # on one line: a name must not look like a paragraph of the lab's own
    text = render_to_string("people/mail/invitation.txt", {"invitation": created.invitation, "link": created.mailed_link, "team": team, "by": by})
    try:
        send_mail(f"You are invited to team {team} in Policy Lab", text, None, [created.invitation.email])
    except Exception as error:  # whatever a mail server answers; the address and not the link stands in the log
        log.warning("the invitation of %s could not be mailed: %r", created.invitation.email, error)
        return False
    return True
