"""Items that somebody who leaves the team holds: free for others at once. Their labels stay, and so do their drafts."""

from __future__ import annotations

from lab.accounts.models import Team, User
from lab.labels.claiming import free_claims
from lab.labels.models import Claim, Queue
from lab.people import leaving
from lab.people.leaving import Held


def register() -> None:
    leaving.register(free, holds)


def free(team: Team, user: User) -> None:
    for queue in Queue.objects.of(team).filter(claims__user=user, claims__seated=True).distinct():
        free_claims(queue, user)


def holds(team: Team, user: User) -> list[Held]:
    found = Claim.objects.filter(queue__team=team, user=user, seated=True).count()
    return [Held(f"{found} item{'s go' if found > 1 else ' goes'} back to the labelling queues; drafts are kept.")] if found else []
