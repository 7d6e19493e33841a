"""Who is told of a promotion: those who may answer when it is asked for, who asked when it is answered."""

from __future__ import annotations

from lab.models.policies.checkpoint_paths import format_checkpoint_label
from lab.models.policies.models import Proposal
from lab.teams.accounts.addresses import team_path
from lab.teams.accounts.models import User
from lab.watching.alerts.kinds import NEWS, PROMOTION
from lab.watching.alerts.notices import notify_members


def notify_proposal_approvers(proposal: Proposal) -> None:
    subject = f"{format_checkpoint_label(proposal.checkpoint)} is proposed for {proposal.alias.name}"
    who = f"Requested by {proposal.asked_by}. " if proposal.asked_by else ""
    url = team_path(proposal.team, "proposal", proposal.pk)
    notify_members(
        proposal.team, PROMOTION, subject, url=url, text=f"{who}{proposal.reason}".strip(), key=f"proposal:{proposal.pk}", but=proposal.asked_by
    )


def notify_proposal_author(proposal: Proposal, by: User, how: str, comment: str) -> None:
    """``how``: approved or refused."""
    if proposal.asked_by is None:
        return
    subject = f"{format_checkpoint_label(proposal.checkpoint)} for {proposal.alias.name}: {how}"
    url = team_path(proposal.team, "proposal", proposal.pk)
    key = f"proposal:{proposal.pk}:{how}"
    notify_members(proposal.team, NEWS, subject, url=url, text=f"By {by}. {comment}".strip(), users=[proposal.asked_by], key=key, but=by)
