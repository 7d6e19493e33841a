"""The blind match that is to follow a run trained on a version: asked for with the run, made when it is launched."""

from __future__ import annotations

from lab.data.datasets.models import Version
from lab.data.loop.models import Match
from lab.teams.accounts.models import Team, User
from lab.training.runs import follow_ups
from lab.training.runs.follow_ups import Wish
from lab.training.runs.forms import LaunchForm
from lab.training.runs.models import Run
from trainers.contract.spec import Problem

KIND = "match"


class MatchFollowUp:
    """The wish: {"version": id, "prompts", "overlap", "labellers": [user ids]}."""

    title = "Blind A/B against the starting policy"

    def words(self, team: Team, wish: Wish) -> str:
        people = User.objects.filter(pk__in=wish["labellers"], memberships__team=team).order_by("email")
        who = ", ".join(map(str, people)) or "anyone who may label"
        prompts, overlap = wish["prompts"], wish["overlap"]
        return (
            f"When it has finished, {who} compare{'s' if len(people) < 2 else ''} its answers with those from before: "
            f"up to {prompts:,} held-out prompt{'' if prompts == 1 else 's'}, {overlap} label{'' if overlap == 1 else 's'} each."
        )

    def problems(self, form: LaunchForm, wish: Wish) -> list[Problem]:
        measured = form.stages[0].evaluation["prompts"].value().strip()
        if measured.strip("0") or not measured:  # an empty one is refused anyway
            return []
        return [
            Problem("evaluation.prompts", measured, "a blind A/B needs held-out prompts", "set Held-out prompts above 0, or turn the blind A/B off")
        ]

    def begin(self, run: Run, user: User, wish: Wish) -> None:
        """The version is noted only where the run still trains on it: the form may have chosen another file."""
        version = Version.objects.of(run.team).select_related("dataset__team").filter(pk=wish["version"]).first()
        trained = version is not None and (run.spec.get("dataset") or {}).get("path") == str(version.path())
        Match.objects.create(
            team=run.team,
            child=run,
            version=version if trained else None,
            prompts=wish["prompts"],
            overlap=wish["overlap"],
            labellers=wish["labellers"],
            created_by=user,
        )


def register_match_wish() -> None:
    follow_ups.KINDS.register(KIND, MatchFollowUp())
