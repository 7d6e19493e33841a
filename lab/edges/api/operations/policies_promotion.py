"""What policies are called: aliases with their gates and history, and who asks for one."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Field, Schema, Status

from lab.edges.api.base import Query, RequestBody, caller_of, make_router, one_of, require_permission
from lab.edges.api.idempotency import Key, run_idempotent_action
from lab.edges.api.operations.account import Person, serialize_person
from lab.edges.api.operations.policies import WHY, policy_of
from lab.edges.api.page_cursors import After, Limit, Page, paginate_rows, parse_after_id
from lab.edges.api.problems import make_invalid_problem
from lab.lib.numbers import MAX_ID
from lab.lib.refusals import Refusal
from lab.models.policies import gates, promotion
from lab.models.policies.checkpoint_paths import format_checkpoint_label
from lab.models.policies.models import NAME_LENGTH, WORDS_LENGTH, Alias, AliasMove, Proposal, ProposalState
from lab.models.policies.views.aliases import MOST_VOTES
from lab.teams.accounts.addresses import build_absolute_url, team_path

router = make_router("Policies")
MOVES = 20  # of an alias's history


class GateIn(RequestBody):
    votes: int = Field(20, ge=0, le=MOST_VOTES, description="Blind votes required in one match.")
    low: float = Field(0.5, ge=0, lt=1, description="The lower bound of its win rate must be above this.")
    against: Literal["any", "start", "holder"] = Field(
        "any", description="Which matches count: all, against the policy its run started from, or against the run whose policy has the alias."
    )
    complete: bool = Field(True, description="Every prompt of the match must be labelled.")
    second_reviewer: bool = Field(True, description="The approver must be neither the requester nor the person who launched the run.")
    no_recalls: bool = True
    no_unsafe: bool = Field(
        True, description="No rollout of its run up to the policy's step is tagged `unsafe` or was skipped as harmful or private by an annotator."
    )
    no_findings: bool = Field(False, description="Health checks must find no issues.")


class GateOut(GateIn):
    pass


class MoveOut(Schema):
    policy: int | None
    label: str = Field(description="Policy that has it afterwards; empty: none.")
    before: str
    by: Person | None
    at: datetime
    comment: str
    back: bool = Field(description="This was a rollback.")


class AliasOut(Schema):
    id: int | None = Field(description="null until it is requested or assigned for the first time.")
    name: str = Field(examples=["production"])
    policy: int | None = Field(description="Id of the policy that has it.")
    label: str
    gate: GateOut | None = Field(description="null: admins assign it immediately.")
    moves: list[MoveOut] = Field(description=f"Newest first, up to {MOVES}.")


class ConditionOut(Schema):
    name: str = Field(examples=["votes"])
    title: str
    met: bool | None = Field(description="null: decided at approval.")
    words: str


class ProposalOut(Schema):
    id: int
    alias: str
    policy: int
    label: str
    url: str
    state: str = Field(description="open, approved, refused or withdrawn.")
    reason: str
    asked_by: Person | None
    asked_at: datetime
    comment: str = Field(description="Comment of the person who decided.")
    decided_by: Person | None
    decided_at: datetime | None


class ProposalDetail(ProposalOut):
    conditions: list[ConditionOut] = Field(description="As they are now; for decided proposals, as they were then.")


class AskIn(RequestBody):
    alias: str = Field(max_length=NAME_LENGTH, examples=["production"])
    reason: str = Field("", max_length=WORDS_LENGTH)


class GiveIn(RequestBody):
    alias: str = Field(max_length=NAME_LENGTH, examples=["candidate"])
    comment: str = Field("", max_length=WORDS_LENGTH)


class WordsIn(RequestBody):
    comment: str = Field("", max_length=WORDS_LENGTH)


class RefuseIn(RequestBody):
    comment: str = Field(min_length=1, max_length=WORDS_LENGTH, description="The reason; the requester sees it.")


def serialize_optional_person(user: Any) -> dict[str, object] | None:
    return serialize_person(user) if user else None


def proposal_of(request: HttpRequest, proposal_id: int) -> Proposal:
    rows = Proposal.objects.filter(team=caller_of(request).team)
    rows = rows.select_related("team", "alias__checkpoint__run", "checkpoint__run__team", "checkpoint__run__created_by", "asked_by", "decided_by")
    proposal: Proposal = one_of(rows, proposal_id)
    return proposal


def alias_of(request: HttpRequest, alias_id: int) -> Alias:
    alias: Alias = one_of(Alias.objects.filter(team=caller_of(request).team).select_related("checkpoint__run"), alias_id)
    return alias


def serialize_proposal(proposal: Proposal) -> dict[str, Any]:
    plain = {name: getattr(proposal, name) for name in ("state", "reason", "asked_at", "comment", "decided_at")}
    about = {"id": proposal.pk, "alias": proposal.alias.name, "policy": proposal.checkpoint_id, "label": format_checkpoint_label(proposal.checkpoint)}
    url = build_absolute_url(team_path(proposal.team, "proposal", proposal.pk))
    return {
        **plain,
        **about,
        "url": url,
        "asked_by": serialize_optional_person(proposal.asked_by),
        "decided_by": serialize_optional_person(proposal.decided_by),
    }


def serialize_proposal_detail(request: HttpRequest, proposal_id: int) -> dict[str, Any]:
    caller, proposal = caller_of(request), proposal_of(request, proposal_id)
    approver = caller.user if caller.may("policies.promote") else None
    conditions = promotion.evaluate_proposal_conditions(proposal, approver) if proposal.state == ProposalState.OPEN else proposal.evidence
    return {**serialize_proposal(proposal), "conditions": conditions}


def serialize_alias(name: str, alias: Alias | None) -> dict[str, Any]:
    gate, held = gates.gate_of(alias, name), gates.holder_of(alias)
    moves = [serialize_alias_move(row) for row in alias.moves.select_related("by")[:MOVES]] if alias else []
    about = {"policy": held.pk if held else None, "label": format_checkpoint_label(held) if held else ""}
    return {"id": alias.pk if alias else None, "name": name, **about, "gate": gate, "moves": moves}


def serialize_alias_move(move: AliasMove) -> dict[str, Any]:
    plain = {name: getattr(move, name) for name in ("label", "at", "comment", "back")}
    return {**plain, "policy": move.checkpoint_id, "before": move.before_label, "by": serialize_optional_person(move.by)}


def name_of(text: str, field: str = "alias") -> str:
    """An alias's name as it is stored. Raises ApiProblem."""
    try:
        return promotion.normalize_alias_name(text)
    except Refusal as error:
        raise make_invalid_problem(field, str(error)) from None


def serialize_fresh_alias(request: HttpRequest, name: str) -> dict[str, Any]:
    """The alias as it is now."""
    return serialize_alias(name, Alias.objects.filter(team=caller_of(request).team, name=name).select_related("checkpoint__run").first())


@router.get("/aliases", auth=require_permission("policies.read"), response=list[AliasOut], summary="List aliases")
def list_aliases(request: HttpRequest) -> object:
    """With the policy, the gate and the history of each."""
    known = {alias.name: alias for alias in Alias.objects.filter(team=caller_of(request).team).select_related("checkpoint__run")}
    return [serialize_alias(name, known.get(name)) for name in dict.fromkeys([*gates.USUAL, *known])]


@router.post(
    "/policies/{int:checkpoint_id}/aliases", auth=require_permission("policies.promote"), response=AliasOut, summary="Assign an alias to a policy"
)
def give_alias(request: HttpRequest, checkpoint_id: int, given: GiveIn) -> object:
    """Immediate if the alias's gate needs no second reviewer and its conditions are met (409 with each unmet one); otherwise request it."""
    caller, checkpoint = caller_of(request), policy_of(request, checkpoint_id)
    name = name_of(given.alias)
    promotion.assign_alias(caller.team, caller.person(WHY), checkpoint, name, given.comment)
    return serialize_fresh_alias(request, name)


@router.post("/aliases/{int:alias_id}/back", auth=require_permission("policies.promote"), response=AliasOut, summary="Roll an alias back")
def roll_back_alias(request: HttpRequest, alias_id: int, given: WordsIn) -> object:
    """To the policy that had it before. The gate is not checked: that policy has already passed it."""
    caller, alias = caller_of(request), alias_of(request, alias_id)
    promotion.roll_back(caller.team, caller.person(WHY), alias, given.comment)
    return serialize_fresh_alias(request, alias.name)


@router.post("/aliases/{int:alias_id}/clear", auth=require_permission("policies.promote"), response=AliasOut, summary="Remove an alias")
def clear_alias(request: HttpRequest, alias_id: int, given: WordsIn) -> object:
    """No policy has it afterwards."""
    caller, alias = caller_of(request), alias_of(request, alias_id)
    promotion.release_alias(caller.team, caller.person(WHY), alias, given.comment)
    return serialize_fresh_alias(request, alias.name)


@router.put("/aliases/{name}/gate", auth=require_permission("policies.promote"), response=AliasOut, summary="Set an alias's gate")
def set_gate(request: HttpRequest, name: str, given: GateIn) -> object:
    """It applies to open proposals, too. An alias that does not exist yet is created."""
    caller, name = caller_of(request), name_of(name, "name")
    promotion.set_gate(caller.team, caller.person(WHY), name, given.dict())
    return serialize_fresh_alias(request, name)


@router.delete("/aliases/{name}/gate", auth=require_permission("policies.promote"), response=AliasOut, summary="Remove an alias's gate")
def remove_gate(request: HttpRequest, name: str) -> object:
    """Admins can then assign it immediately."""
    caller, name = caller_of(request), name_of(name, "name")
    promotion.set_gate(caller.team, caller.person(WHY), name, None)
    return serialize_fresh_alias(request, name)


@router.get(
    "/policies/{int:checkpoint_id}/gate",
    auth=require_permission("policies.read"),
    response=list[ConditionOut],
    summary="Gate of an alias",
)
def get_conditions(
    request: HttpRequest,
    checkpoint_id: int,
    alias: str = Query(gates.PRODUCTION, max_length=NAME_LENGTH, description="The alias whose gate is checked."),
) -> object:
    """Every condition of the alias's gate, and whether the policy meets it now."""
    checkpoint, name = policy_of(request, checkpoint_id), name_of(alias)
    holder = Alias.objects.filter(team=caller_of(request).team, name=name).select_related("checkpoint__run").first()
    return gates.evaluate_gate_conditions(holder, gates.gate_of(holder, name), checkpoint)


@router.get("/proposals", auth=require_permission("policies.read"), response=Page[ProposalOut], summary="List proposals")
def list_proposals(
    request: HttpRequest,
    after: After,
    limit: Limit,
    state: Literal["", "open", "approved", "refused", "withdrawn"] = Query("", description="Filter by state."),
    policy: int | None = Query(None, ge=1, le=MAX_ID, description="Only proposals for this policy."),
) -> object:
    """Requests for an alias, newest first."""
    chosen = {"state": state, "checkpoint": policy}
    rows = Proposal.objects.filter(team=caller_of(request).team, pk__lt=parse_after_id(after)).filter(
        **{key: value for key, value in chosen.items() if value}
    )
    rows = rows.select_related("team", "alias", "checkpoint__run", "asked_by", "decided_by").order_by("-pk")
    return paginate_rows(list(rows[: limit + 1]), limit, lambda row: row.pk, serialize_proposal)


@router.post(
    "/policies/{int:checkpoint_id}/proposals",
    auth=require_permission("policies.use"),
    response={201: ProposalDetail, 200: ProposalDetail},
    summary="Request an alias for a policy",
)
def ask_alias(request: HttpRequest, checkpoint_id: int, given: AskIn, key: Key) -> object:
    """Admins are notified; one of them approves or refuses."""
    caller, checkpoint = caller_of(request), policy_of(request, checkpoint_id)
    user, name = caller.person(WHY), name_of(given.alias)
    keys, new = run_idempotent_action(request, caller, key, lambda: [promotion.propose_alias(caller.team, user, checkpoint, name, given.reason).pk])
    return Status(201 if new else 200, serialize_proposal_detail(request, int(keys[0])))


@router.get("/proposals/{int:proposal_id}", auth=require_permission("policies.read"), response=ProposalDetail, summary="One proposal")
def get_proposal(request: HttpRequest, proposal_id: int) -> object:
    """Includes the conditions of its gate and whether they are met."""
    return serialize_proposal_detail(request, proposal_id)


@router.post(
    "/proposals/{int:proposal_id}/approve", auth=require_permission("policies.promote"), response=ProposalDetail, summary="Approve a proposal"
)
def approve_proposal(request: HttpRequest, proposal_id: int, given: WordsIn) -> object:
    """Assigns the alias if every condition is met now; otherwise returns a 409 with each unmet condition in `errors`."""
    caller, proposal = caller_of(request), proposal_of(request, proposal_id)
    promotion.approve_proposal(caller.team, caller.person(WHY), proposal, given.comment)
    return serialize_proposal_detail(request, proposal_id)


@router.post("/proposals/{int:proposal_id}/refuse", auth=require_permission("policies.promote"), response=ProposalDetail, summary="Refuse a proposal")
def refuse_proposal(request: HttpRequest, proposal_id: int, given: RefuseIn) -> object:
    """The requester is notified, with the reason."""
    caller, proposal = caller_of(request), proposal_of(request, proposal_id)
    promotion.refuse_proposal(caller.team, caller.person(WHY), proposal, given.comment)
    return serialize_proposal_detail(request, proposal_id)


@router.post("/proposals/{int:proposal_id}/withdraw", auth=require_permission("policies.use"), response=ProposalDetail, summary="Withdraw a proposal")
def withdraw_proposal(request: HttpRequest, proposal_id: int) -> object:
    """For the requester or an admin."""
    caller, proposal = caller_of(request), proposal_of(request, proposal_id)
    promotion.withdraw_proposal(caller.team, caller.person(WHY), proposal)
    return serialize_proposal_detail(request, proposal_id)
