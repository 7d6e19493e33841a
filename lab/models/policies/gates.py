"""Whether a checkpoint may hold an alias: every condition of the alias's gate, met or not, with what shows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from lab.data.loop.recall_effects import flags_of_run
from lab.labelling.labels.safety import TAG, list_unsafe_rollouts
from lab.models.policies import blind_votes
from lab.models.policies.blind_votes import MatchEvidence
from lab.models.policies.checkpoint_paths import has_checkpoint_files
from lab.models.policies.models import Alias, Gate, Removal
from lab.rollouts.doctor.examine import examine_run
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Checkpoint

PRODUCTION = "production"
# The gates that stand before anybody sets one. A candidate is what will be voted on, so it needs no votes yet.
DEFAULT_GATES: dict[str, dict[str, Any]] = {"candidate": {"votes": 0, "low": 0.0, "second_reviewer": False}, PRODUCTION: {}}
USUAL = tuple(DEFAULT_GATES)


@dataclass(frozen=True)
class Condition:
    """``met`` None: it is decided when somebody approves."""

    name: str
    title: str
    met: bool | None
    words: str
    url: str = ""
    link: str = ""

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "title": self.title, "met": self.met, "words": self.words}


def gate_of(alias: Alias | None, name: str) -> Gate | None:
    """The gate that stands before the alias called ``name``, which need not be in the database yet (then ``alias`` is None)."""
    if alias is not None and alias.pk:
        return Gate.objects.filter(alias=alias).first()
    fields = DEFAULT_GATES.get(name.lower())
    return None if fields is None else Gate(**fields)


def evaluate_gate_conditions(
    alias: Alias | None, gate: Gate | None, checkpoint: Checkpoint, asked_by: User | None = None, approver: User | None = None
) -> list[Condition]:
    """All that has to be met. ``approver`` None: nobody approves yet."""
    conditions = [check_weights_present(checkpoint)]
    if gate is None:
        return conditions
    if gate.votes or gate.low > 0:
        conditions += check_vote_conditions(alias, gate, checkpoint)
    if gate.no_recalls:
        conditions.append(check_recalled_labels(checkpoint))
    if gate.no_unsafe:
        conditions.append(check_safety_labels(checkpoint))
    if gate.no_findings:
        conditions.append(check_doctor_findings(checkpoint))
    if gate.second_reviewer:
        conditions.append(check_second_reviewer(checkpoint, asked_by, approver))
    return conditions


def select_unmet_conditions(conditions: list[Condition]) -> list[Condition]:
    return [condition for condition in conditions if not condition.met]


def check_weights_present(checkpoint: Checkpoint) -> Condition:
    title = "Weights are on disk"
    if Removal.objects.filter(checkpoint=checkpoint, kept_at=None).exists() or not has_checkpoint_files(checkpoint):
        return Condition("weights", title, False, "They were deleted or are scheduled for deletion.")
    return Condition("weights", title, True, "On disk.")


def check_vote_conditions(alias: Alias | None, gate: Gate, checkpoint: Checkpoint) -> Iterator[Condition]:
    team = checkpoint.run.team
    best = select_gate_evidence(gate, blind_votes.collect_match_evidence([checkpoint])[checkpoint.pk], holder_of(alias))
    wins = f"{reverse('run', args=[checkpoint.run_id])}#wins"
    link = (reverse("run", args=[best.match.child_id]) + "#wins", "Votes") if best else (wins, "Start a match")
    against = f"against {best.other}" if best else ""
    enough = f"At least {gate.votes} blind vote{'' if gate.votes == 1 else 's'} in one match"
    if gate.against != Gate.Against.ANY:
        enough += f", against {against_words(gate, alias, team)}"
    have = f"{best.votes} of {gate.votes}, {against}." if best else "None: there is no blind match of that kind."
    yield Condition("votes", enough, best is not None and best.votes >= gate.votes, have, *link)
    above = f"Lower bound of the win rate above {gate.percent:g} %"
    words = "No votes."
    if best is not None and best.rate is not None:
        words = f"{100 * best.rate.value:.1f} %, and at least {100 * best.floor:.1f} % (Wilson, 95 %) {against}."
    yield Condition("low", above, best is not None and best.floor > gate.low, words, *link)
    if gate.complete:
        done = f"{best.tally.labelled} of {best.tally.queued} prompts." if best else "No match."
        yield Condition("complete", "The match is fully labelled", best is not None and best.tally.complete, done, *link)


def select_gate_evidence(gate: Gate, evidence: list[MatchEvidence], holder: Checkpoint | None) -> MatchEvidence | None:
    """The match that counts: of those the gate takes, one that meets its numbers, else the one with most votes."""
    if gate.against == Gate.Against.START:
        evidence = [match_votes for match_votes in evidence if match_votes.started]
    elif gate.against == Gate.Against.HOLDER and holder is not None:
        runs = {holder.run_id}
        evidence = [
            match_votes for match_votes in evidence if ({match_votes.match.against_id} if match_votes.child else {match_votes.match.child_id}) & runs
        ]
    meeting = [
        match_votes
        for match_votes in evidence
        if match_votes.votes >= gate.votes and match_votes.floor > gate.low and (match_votes.tally.complete or not gate.complete)
    ]
    return next(iter(meeting or evidence), None)


def holder_of(alias: Alias | None) -> Checkpoint | None:
    return alias.checkpoint if alias is not None and alias.checkpoint_id else None


def against_words(gate: Gate, alias: Alias | None, team: Team) -> str:
    if gate.against == Gate.Against.START:
        return "the starting policy of its run"
    holder = holder_of(alias)
    return f"{holder.run}, which has it" if holder else "anything, as it is unassigned"


def check_recalled_labels(checkpoint: Checkpoint) -> Condition:
    title = "No recalled labels in its training data"
    flags = flags_of_run(checkpoint.run)
    if not flags:
        return Condition("recalls", title, True, "Neither in its data nor in the data of its ancestors.", build_lineage_url(checkpoint), "Lineage")
    names = ", ".join(str(version) for version, _ in flags[:3])
    return Condition("recalls", title, False, f"It uses {names}.", reverse("recalls"), "Recalls")


def check_safety_labels(checkpoint: Checkpoint) -> Condition:
    title = "No open safety labels on its rollouts"
    unsafe = list_unsafe_rollouts(checkpoint.run, checkpoint.step)
    if not unsafe:
        return Condition("unsafe", title, True, f"None is tagged “{TAG}” or was skipped as harmful or private.")
    words = f"{len(unsafe):,} rollout{' is' if len(unsafe) == 1 else 's are'} tagged “{TAG}” or skipped as harmful or private."
    return Condition("unsafe", title, False, words, reverse("rollout", args=[unsafe[0]]), "First one")


def build_lineage_url(checkpoint: Checkpoint) -> str:
    return f"{reverse('lineage')}?run={checkpoint.run.number}"


def check_doctor_findings(checkpoint: Checkpoint) -> Condition:
    findings = examine_run(checkpoint.run).findings
    titles = "; ".join(finding.verdict.title or finding.rule.title for finding in findings[:3])
    words = f"{titles}." if findings else "No issues found."
    return Condition(
        "findings", "Health checks find no issues", not findings, words, reverse("run-doctor", args=[checkpoint.run_id]), "Health checks"
    )


def check_second_reviewer(checkpoint: Checkpoint, asked_by: User | None, approver: User | None) -> Condition:
    title = "A second reviewer approves"
    launcher = checkpoint.run.created_by
    if approver is None:
        return Condition("second", title, None, "An admin who neither requested it nor launched the run.")
    if asked_by is not None and approver.pk == asked_by.pk:
        return Condition("second", title, False, "You requested it yourself; another admin must approve.")
    if launcher is not None and approver.pk == launcher.pk:
        return Condition("second", title, False, "You launched the run; another admin must approve.")
    return Condition("second", title, True, f"{approver} neither requested it nor launched the run.")
