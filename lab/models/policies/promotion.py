"""Who holds an alias, and how that changes: asked for, approved or refused, given, taken, rolled back. Every rule is enforced here, not on a page.

The alias's row is locked while it moves, so that of two approvals at once the second sees the first; the checkpoint's row is locked against its
deletion.
"""

from __future__ import annotations

import re
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from lab.lib.refusals import Problem, Refusal
from lab.models.policies import gates, promotion_notices
from lab.models.policies.checkpoint_paths import format_checkpoint_label
from lab.models.policies.gates import Condition
from lab.models.policies.models import NAME_LENGTH, WORDS_LENGTH, Alias, AliasMove, Gate, Proposal, ProposalState
from lab.teams.accounts.models import Membership, Team, User
from lab.teams.accounts.permissions import explain_role_refusal, is_role_allowed
from lab.teams.audit.recording import record_audit_entry
from lab.training.runs.models import Checkpoint

NAME = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)
MOST_ALIASES = 50


def propose_alias(team: Team, user: User, checkpoint: Checkpoint, name: str, reason: str = "") -> Proposal:
    """Asks that the checkpoint get the alias. Raises Refusal."""
    require_team_permission(team, user, "policies.use")
    with transaction.atomic():
        alias, held = lock_alias_by_name(team, name), lock_team_checkpoint(team, checkpoint)
        if alias.checkpoint_id == held.pk:
            raise Refusal(f"{format_checkpoint_label(held)} already has {alias.name}.")
        if not gates.check_weights_present(held).met:
            raise Refusal("Its weights were deleted or are scheduled for deletion.")
        try:
            with transaction.atomic():
                proposal = Proposal.objects.create(team=team, alias=alias, checkpoint=held, asked_by=user, reason=clean_comment_text(reason))
        except IntegrityError:
            raise Refusal(f"{alias.name} has already been requested for it; an admin must decide.") from None
        record_audit_entry("policy.ask", held, team=team, actor=user, label=format_checkpoint_label(held), alias=alias.name)
        promotion_notices.notify_proposal_approvers(proposal)
    return proposal


def evaluate_proposal_conditions(proposal: Proposal, approver: User | None = None) -> list[Condition]:
    """The conditions of an open proposal as they are now."""
    return gates.evaluate_gate_conditions(
        proposal.alias, gates.gate_of(proposal.alias, proposal.alias.name), proposal.checkpoint, proposal.asked_by, approver
    )


def approve_proposal(team: Team, user: User, proposal: Proposal, comment: str = "") -> AliasMove:
    """Gives the alias to the checkpoint, if every condition is met now. Raises Refusal."""
    require_team_permission(team, user, "policies.promote")
    with transaction.atomic():
        opened = open_one(team, proposal)
        conditions = evaluate_proposal_conditions(opened, user)
        refuse_unmet_conditions(conditions)
        save_proposal_decision(opened, user, ProposalState.APPROVED, comment, conditions)
        move = move_alias(opened.alias, opened.checkpoint, user, comment, opened)
        record_audit_entry(
            "policy.promote",
            opened.checkpoint,
            team=team,
            actor=user,
            label=format_checkpoint_label(opened.checkpoint),
            alias=opened.alias.name,
            before=move.before_label,
        )
        promotion_notices.notify_proposal_author(opened, user, "approved", comment)
    return move


def refuse_proposal(team: Team, user: User, proposal: Proposal, comment: str) -> None:
    """Raises Refusal; a refusal says why."""
    require_team_permission(team, user, "policies.promote")
    if not comment.strip():
        raise Refusal("Enter a comment, so that the requester knows what is missing.")
    with transaction.atomic():
        opened = open_one(team, proposal)
        save_proposal_decision(opened, user, ProposalState.REFUSED, comment, evaluate_proposal_conditions(opened, user))
        record_audit_entry(
            "policy.refuse",
            opened.checkpoint,
            team=team,
            actor=user,
            label=format_checkpoint_label(opened.checkpoint),
            alias=opened.alias.name,
            why=clean_comment_text(comment),
        )
        promotion_notices.notify_proposal_author(opened, user, "refused", comment)


def withdraw_proposal(team: Team, user: User, proposal: Proposal) -> None:
    """By who asked, or an admin. Raises Refusal."""
    role = require_team_permission(team, user, "policies.use")
    with transaction.atomic():
        opened = open_one(team, proposal)
        if opened.asked_by_id != user.pk and not is_role_allowed(role, "policies.promote"):
            raise Refusal("Only the requester or an admin can withdraw this.")
        save_proposal_decision(opened, user, ProposalState.WITHDRAWN, "", [])
        record_audit_entry(
            "policy.withdraw", opened.checkpoint, team=team, actor=user, label=format_checkpoint_label(opened.checkpoint), alias=opened.alias.name
        )


def assign_alias(team: Team, user: User, checkpoint: Checkpoint, name: str, comment: str = "") -> AliasMove:
    """At once, by an admin, where the alias's gate asks for no second reviewer and all else it asks for is met. Raises Refusal."""
    require_team_permission(team, user, "policies.promote")
    with transaction.atomic():
        alias, held = lock_alias_by_name(team, name), lock_team_checkpoint(team, checkpoint)
        gate = gates.gate_of(alias, alias.name)
        if gate is not None and gate.second_reviewer:
            raise Refusal(f"{alias.name} has a gate: request it, and another admin approves.")
        if alias.checkpoint_id == held.pk:
            raise Refusal(f"{format_checkpoint_label(held)} already has {alias.name}.")
        if not gates.check_weights_present(held).met:
            raise Refusal("Its weights were deleted or are scheduled for deletion.")
        refuse_unmet_conditions(gates.evaluate_gate_conditions(alias, gate, held))
        Proposal.objects.filter(alias=alias, checkpoint=held, state=ProposalState.OPEN).update(
            state=ProposalState.APPROVED, decided_by=user, decided_at=timezone.now(), comment=clean_comment_text(comment)
        )
        move = move_alias(alias, held, user, comment)
        record_audit_entry(
            "policy.alias", held, team=team, actor=user, label=format_checkpoint_label(held), alias=alias.name, before=move.before_label
        )
    return move


def release_alias(team: Team, user: User, alias: Alias, comment: str = "") -> AliasMove:
    """Nobody holds it afterwards. Raises Refusal."""
    require_team_permission(team, user, "policies.promote")
    with transaction.atomic():
        own = lock_alias(team, alias)
        if own.checkpoint is None:
            raise Refusal(f"{own.name} is unassigned.")
        held = own.checkpoint
        move = move_alias(own, None, user, comment)
        record_audit_entry("policy.alias", held, team=team, actor=user, label=format_checkpoint_label(held), alias=own.name, taken=True)
    return move


def roll_back(team: Team, user: User, alias: Alias, comment: str = "") -> AliasMove:
    """To who held it before. Asks no gate: the one before has passed it, and going back must not wait. Raises Refusal."""
    require_team_permission(team, user, "policies.promote")
    with transaction.atomic():
        own = lock_alias(team, alias)
        last = own.moves.first()
        if last is None or last.before_id is None:
            raise Refusal(f"{own.name} has no previous holder.")
        held = lock_team_checkpoint(team, last.before)
        if not gates.check_weights_present(held).met:
            raise Refusal(f"The weights of {format_checkpoint_label(held)} were deleted; there is nothing to go back to.")
        move = move_alias(own, held, user, comment, back=True)
        record_audit_entry(
            "policy.alias", held, team=team, actor=user, label=format_checkpoint_label(held), alias=own.name, before=move.before_label, back=True
        )
    return move


def set_gate(team: Team, user: User, name: str, fields: dict[str, Any] | None) -> Gate | None:
    """The alias's gate; None takes it away. Open proposals are judged by the new one. Raises Refusal."""
    require_team_permission(team, user, "policies.promote")
    with transaction.atomic():
        alias = lock_alias_by_name(team, name)
        before = gates.gate_of(alias, alias.name)
        if fields is None:
            Gate.objects.filter(alias=alias).delete()
            record_audit_entry("policy.gate", alias, team=team, actor=user, label=alias.name, gate="none")
            return None
        gate, _ = Gate.objects.update_or_create(alias=alias, defaults={**fields, "changed_by": user})
        was = {key: getattr(before, key) for key in fields} if before else "none"
        record_audit_entry("policy.gate", alias, team=team, actor=user, label=alias.name, gate=fields, before=was)
    return gate


# The parts


def refuse_unmet_conditions(conditions: list[Condition]) -> None:
    """Raises Refusal with a problem for each condition that is not met."""
    if missing := gates.select_unmet_conditions(conditions):
        raise Refusal(
            "Not yet: " + " ".join(f"{condition.title} ({condition.words.rstrip('.')})." for condition in missing),
            problems=[Problem(f"gate.{condition.name}", f"{condition.title}: {condition.words}") for condition in missing],
        )


def require_team_permission(team: Team, user: User, permission: str) -> str:
    """The person's role. A verb asks by itself: not only pages call it."""
    member = Membership.objects.filter(team=team, user=user, active=True, user__is_active=True).first()
    if member is None:
        raise Refusal(f"You are not in team {team}.")
    if not is_role_allowed(member.role, permission):
        raise Refusal(explain_role_refusal(permission, member.role, str(team)))
    return str(member.role)


def normalize_alias_name(name: str) -> str:
    """An alias's name as it is stored. Raises Refusal."""
    name = name.strip().lower()
    if not NAME.fullmatch(name) or len(name) > NAME_LENGTH:
        raise Refusal(f"An alias has 1 to {NAME_LENGTH} lowercase letters, digits and dashes and starts with a letter, like “candidate”.")
    return name


def lock_alias_by_name(team: Team, name: str) -> Alias:
    """The team's alias of that name, made when it is new, locked until the transaction ends. Raises Refusal."""
    name = normalize_alias_name(name)
    Team.objects.select_for_update(of=("self",), no_key=True).get(pk=team.pk)  # of two who make the same alias one waits
    if not Alias.objects.filter(team=team, name=name).exists():
        if Alias.objects.filter(team=team).count() >= MOST_ALIASES:
            raise Refusal(f"A team has at most {MOST_ALIASES} aliases; use an existing one.")
        fresh = Alias.objects.create(team=team, name=name)
        if name in gates.DEFAULT_GATES:
            Gate.objects.create(alias=fresh, **gates.DEFAULT_GATES[name])
    return lock_alias(team, Alias.objects.get(team=team, name=name))


def lock_alias(team: Team, alias: Alias) -> Alias:
    return Alias.objects.select_for_update(of=("self",)).select_related("checkpoint__run").get(pk=alias.pk, team=team)


def lock_team_checkpoint(team: Team, checkpoint: Checkpoint | None) -> Checkpoint:
    """The checkpoint, locked against its deletion. Raises Refusal."""
    rows = Checkpoint.objects.select_for_update(of=("self",), no_key=True).select_related("run__team", "run__created_by")
    locked = rows.of(team).filter(pk=checkpoint.pk).first() if checkpoint is not None else None
    if locked is None:
        raise Refusal("Your team has no such checkpoint.")
    return locked


def open_one(team: Team, proposal: Proposal) -> Proposal:
    """The proposal with its alias and its checkpoint locked, in the order every verb takes them. Raises Refusal when it is answered."""
    alias = lock_alias(team, proposal.alias)
    held = lock_team_checkpoint(team, proposal.checkpoint)
    opened = Proposal.objects.select_for_update(of=("self",)).select_related("asked_by").get(pk=proposal.pk, team=team)
    if opened.state != ProposalState.OPEN:
        raise Refusal(f"This was already {opened.state}.")
    opened.alias, opened.checkpoint = alias, held
    return opened


def save_proposal_decision(proposal: Proposal, user: User, state: ProposalState, comment: str, conditions: list[Condition]) -> None:
    proposal.state, proposal.decided_by, proposal.decided_at = state, user, timezone.now()
    proposal.comment, proposal.evidence = clean_comment_text(comment), [condition.as_json() for condition in conditions]
    proposal.save(update_fields=["state", "decided_by", "decided_at", "comment", "evidence"])


def move_alias(alias: Alias, to: Checkpoint | None, user: User, comment: str, proposal: Proposal | None = None, *, back: bool = False) -> AliasMove:
    before = alias.checkpoint
    alias.checkpoint = to
    alias.save(update_fields=["checkpoint"])
    return AliasMove.objects.create(
        alias=alias,
        checkpoint=to,
        label=format_checkpoint_label(to)[:200] if to else "",
        before=before,
        before_label=format_checkpoint_label(before)[:200] if before else "",
        proposal=proposal,
        by=user,
        comment=clean_comment_text(comment),
        back=back,
    )


def clean_comment_text(words: str) -> str:
    return words.replace("\0", "").strip()[:WORDS_LENGTH]
