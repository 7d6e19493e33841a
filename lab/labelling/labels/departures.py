"""Items that somebody who leaves the team holds: free for others at once. Their labels stay, and so do their drafts."""

from __future__ import annotations

from lab.labelling.labels.item_claims import free_claims
from lab.labelling.labels.models import Claim, Queue
from lab.teams.accounts.models import Team, User
from lab.teams.people import departures
from lab.teams.people.departures import MemberHolding


def register_claim_freeing() -> None:
    departures.register_leaving_hook("labels", free_user_claims, describe_held_claims)


def free_user_claims(team: Team, user: User) -> None:
    for queue in Queue.objects.of(team).filter(claims__user=user, claims__seated=True).distinct():
        free_claims(queue, user)


def describe_held_claims(team: Team, user: User) -> list[MemberHolding]:
    count = Claim.objects.filter(queue__team=team, user=user, seated=True).count()
    return [MemberHolding(f"{count} item{'s go' if count > 1 else ' goes'} back to the labelling queues; drafts are kept.")] if count else []
