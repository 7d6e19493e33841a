"""Who is told of a promotion: those who may answer when it is asked for, who asked when it is answered."""

from __future__ import annotations

from lab.accounts.addresses import team_path
from lab.accounts.models import User
from lab.alerts.kinds import NEWS, PROMOTION
from lab.alerts.notifying import notify
from lab.policies.models import Proposal
from lab.policies.places import label


def asked(proposal: Proposal) -> None:
    subject = f"{label(proposal.checkpoint)} is proposed for {proposal.alias.name}"
    who = f"{proposal.asked_by} asks. " if proposal.asked_by else ""
    url = team_path(proposal.team, "proposal", proposal.pk)
    notify(proposal.team, PROMOTION, subject, url=url, text=f"{who}{proposal.reason}".strip(), key=f"proposal:{proposal.pk}", but=proposal.asked_by)


def answered(proposal: Proposal, by: User, how: str, comment: str) -> None:
    """``how``: approved or refused."""
    if proposal.asked_by is None:
        return
    subject = f"{label(proposal.checkpoint)} for {proposal.alias.name}: {how}"
    url = team_path(proposal.team, "proposal", proposal.pk)
    key = f"proposal:{proposal.pk}:{how}"
    notify(proposal.team, NEWS, subject, url=url, text=f"By {by}. {comment}".strip(), users=[proposal.asked_by], key=key, but=by)
