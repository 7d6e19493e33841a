"""Promotion: what the gate asks, who may answer, and what happens when two answer at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client

from lab.data.datasets.models import Recall, RecallKind
from lab.data.loop.models import Match
from lab.labelling.labels.models import Judgement, JudgementState, Queue
from lab.labelling.labels.safety import HARMFUL, list_unsafe_rollouts
from lab.lib.refusals import Refusal
from lab.models.policies import blind_votes, promotion, removal
from lab.models.policies.models import Alias, AliasMove, Gate, Proposal, ProposalState
from lab.rollouts.annotations.models import RolloutTag, Tag
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Role, Team, User
from lab.teams.audit.models import Entry
from lab.training.runs.models import Run
from lab.watching.alerts.defaults import begin_all
from lab.watching.alerts.models import Notice
from tests.conftest import make_member
from tests.lab.loop.making import frozen, labelled_queue, sampled
from tests.lab.policies.making import at, final_of, matched, trained, vote

NAMES = {"weights", "votes", "low", "complete", "recalls", "unsafe", "second"}


@pytest.fixture
def admin(team: Team) -> User:
    return make_member("admin@example.org", team, Role.ADMIN)


@pytest.fixture
def asked(team: Team, teammate: User) -> Proposal:
    """For production, by a researcher who launched the run, with no votes yet."""
    run, _ = matched(team, teammate, prompts=24)
    return promotion.propose_alias(team, teammate, final_of(run), "production", "best so far")


def match_of(proposal: Proposal) -> Match:
    return Match.objects.get(child=proposal.checkpoint.run)


def unmet(team: Team, user: User, proposal: Proposal) -> set[str]:
    with pytest.raises(Refusal) as caught:
        promotion.approve_proposal(team, user, proposal)
    return {one.field.removeprefix("gate.") for one in caught.value.problems}


def test_without_votes_nobody_is_promoted(team: Team, admin: User, asked: Proposal) -> None:
    assert unmet(team, admin, asked) == {"votes", "low", "complete"}
    asked.refresh_from_db()
    assert asked.state == ProposalState.OPEN
    assert not AliasMove.across_teams.exists()


@pytest.mark.feature(103)
def test_enough_votes_for_it_and_a_second_reviewer_give_the_alias(team: Team, teammate: User, admin: User, asked: Proposal) -> None:
    vote(match_of(asked), teammate, 20, 4)
    move = promotion.approve_proposal(team, admin, asked, "well done")
    alias = Alias.objects.get(team=team, name="production")
    assert alias.checkpoint_id == asked.checkpoint_id
    assert (move.by, move.before, move.proposal_id) == (admin, None, asked.pk)
    entry = Entry.across_teams.get(action="policy.promote")
    assert (entry.actor, entry.team, entry.details["alias"]) == (admin, team, "production")
    asked.refresh_from_db()
    assert {one["name"] for one in asked.evidence} == NAMES
    assert all(one["met"] for one in asked.evidence)


@pytest.mark.feature(103)
@pytest.mark.parametrize(("wins", "losses", "missing"), [(13, 11, {"low"}), (19, 0, {"votes", "complete"}), (17, 7, set()), (20, 3, {"complete"})])
def test_the_lower_bound_counts_not_the_rate(
    team: Team, teammate: User, admin: User, asked: Proposal, wins: int, losses: int, missing: set[str]
) -> None:
    vote(match_of(asked), teammate, wins, losses)
    if missing:
        assert unmet(team, admin, asked) == missing
    else:
        promotion.approve_proposal(team, admin, asked)


def test_votes_are_of_the_policy_that_was_asked_about_and_no_other(team: Team, teammate: User, asked: Proposal) -> None:
    vote(match_of(asked), teammate, 20, 4)
    run = asked.checkpoint.run
    found = blind_votes.collect_match_evidence([at(run, 50), at(run, 100), final_of(run)])
    assert not found[at(run, 50).pk]
    assert [one.votes for one in found[at(run, 100).pk]] == [24]  # the same policy as the final one
    assert [one.votes for one in found[final_of(run).pk]] == [24]


def test_the_other_side_sees_the_same_votes_turned_round(team: Team, teammate: User) -> None:
    parent = trained(team, teammate, name="parent")
    spec = {"policy": {"kind": "run", "run": str(parent.pk), "checkpoint": 50}}
    _, match = matched(team, teammate, prompts=12, **spec)
    vote(match, teammate, 9, 3)
    [turned] = blind_votes.collect_match_evidence([at(parent, 50)])[at(parent, 50).pk]
    assert turned.rate is not None
    assert (turned.rate.value, turned.child) == (0.25, False)
    assert turned.rate.low < 0.25 < turned.rate.high
    assert not blind_votes.collect_match_evidence([final_of(parent)])[final_of(parent).pk]


def test_who_asked_and_who_launched_cannot_approve(team: Team, teammate: User, admin: User, owner: User) -> None:
    run, match = matched(team, admin, prompts=24)
    vote(match, teammate, 24)
    proposal = promotion.propose_alias(team, owner, final_of(run), "production")
    assert unmet(team, owner, proposal) == {"second"}
    assert unmet(team, admin, proposal) == {"second"}
    with pytest.raises(Refusal, match="your role is researcher"):
        promotion.approve_proposal(team, teammate, proposal)
    promotion.approve_proposal(team, make_member("third@example.org", team, Role.ADMIN), proposal)


def test_recalled_labels_close_the_gate(team: Team, teammate: User, admin: User) -> None:
    source = trained(team, teammate, *sampled(1, 2))
    queue: Queue = labelled_queue(team, teammate, source)
    version = frozen(team, teammate, queue)
    spec = {"dataset": {"file": version.train_file}, "training": {"trainer": "dpo", "max_steps": 100}, "recipe": "dpo"}
    run, match = matched(team, teammate, prompts=24, **spec)
    vote(match, admin, 24)
    proposal = promotion.propose_alias(team, teammate, final_of(run), "production")
    recall = Recall.objects.create(team=team, kind=RecallKind.LABELLER, labeller=teammate, reason="guessed", by=admin)
    assert unmet(team, admin, proposal) == {"recalls"}
    recall.undone_at = recall.at
    recall.save()
    promotion.approve_proposal(team, admin, proposal)


@pytest.mark.feature(103)
def test_an_open_safety_label_closes_the_gate(team: Team, teammate: User, admin: User, asked: Proposal) -> None:
    match = match_of(asked)
    vote(match, teammate, 24)
    item = match.queue.items.order_by("place").first()  # type: ignore[union-attr]
    assert item is not None
    skipped = Judgement.objects.create(
        item=item, queue=item.queue, user=admin, key=uuid4(), verdict="skip", rationale=HARMFUL, order=[0, 1], seconds=2.0
    )
    assert unmet(team, admin, asked) == {"unsafe"}
    assert [condition.words for condition in promotion.evaluate_proposal_conditions(asked) if condition.name == "unsafe"] == [
        "2 rollouts are tagged “unsafe” or skipped as harmful or private."
    ]
    skipped.state = JudgementState.WITHDRAWN
    skipped.save()
    tagged = RolloutTag.objects.create(rollout_id=item.rollouts[0], tag=Tag.objects.create(team=team, name="Unsafe"), user=teammate)
    assert unmet(team, admin, asked) == {"unsafe"}
    tagged.delete()
    promotion.approve_proposal(team, admin, asked)


def test_a_safety_label_of_another_run_or_a_later_step_is_not_about_the_policy(team: Team, teammate: User, asked: Proposal) -> None:
    tag = Tag.objects.create(team=team, name="unsafe")
    other, _ = matched(team, teammate, prompts=2)
    RolloutTag.objects.create(rollout=Rollout.objects.filter(run=other).latest("step"), tag=tag)
    run = asked.checkpoint.run
    RolloutTag.objects.create(rollout=Rollout.objects.filter(run=run).latest("step"), tag=tag)
    assert list_unsafe_rollouts(run, 50) == []
    assert len(list_unsafe_rollouts(run, 100)) == 1


def test_the_gate_can_ask_for_more_or_less(team: Team, teammate: User, admin: User, asked: Proposal) -> None:
    fields = {"votes": 0, "low": 0.0, "against": Gate.Against.ANY, "complete": False, "second_reviewer": False, "no_recalls": False}
    promotion.set_gate(team, admin, "production", {**fields, "no_findings": False})
    promotion.approve_proposal(team, admin, asked)
    assert Entry.across_teams.get(action="policy.gate").details["before"]["votes"] == 20


def test_against_the_holder_only_a_match_with_its_run_counts(team: Team, teammate: User, admin: User, asked: Proposal) -> None:
    vote(match_of(asked), teammate, 20, 4)
    promotion.approve_proposal(team, admin, asked)
    gate = Gate.across_teams.get(alias__name="production")
    gate.against = Gate.Against.HOLDER
    gate.save()
    run, match = matched(team, teammate, prompts=24)
    vote(match, teammate, 24)
    assert unmet(team, admin, promotion.propose_alias(team, teammate, final_of(run), "production")) == {"votes", "low", "complete"}


def test_an_alias_without_a_gate_is_given_at_once_and_one_with_a_gate_is_not(team: Team, teammate: User, admin: User) -> None:
    run = trained(team, teammate)
    promotion.assign_alias(team, admin, at(run, 50), "staging")
    promotion.assign_alias(team, admin, final_of(run), "Staging ")
    assert Alias.objects.get(team=team).checkpoint == final_of(run)  # one alias, one holder
    with pytest.raises(Refusal, match="production has a gate"):
        promotion.assign_alias(team, admin, final_of(run), "production")
    with pytest.raises(Refusal, match="your role is researcher"):
        promotion.assign_alias(team, teammate, final_of(run), "staging")


@pytest.mark.feature(103)
def test_a_candidate_needs_clean_labels_but_neither_votes_nor_a_second_person(team: Team, admin: User) -> None:
    run = trained(team, admin, *sampled(1, 2))
    unsafe = Rollout.objects.filter(run=run).first()
    assert unsafe is not None
    tag = RolloutTag.objects.create(rollout=unsafe, tag=Tag.objects.create(team=team, name="Unsafe"), user=admin)
    with pytest.raises(Refusal) as caught:
        promotion.assign_alias(team, admin, final_of(run), "candidate")
    assert [one.field for one in caught.value.problems] == ["gate.unsafe"]
    assert not Alias.across_teams.exists()
    tag.delete()
    promotion.assign_alias(team, admin, final_of(run), "candidate")
    assert Alias.objects.get(team=team).checkpoint == final_of(run)


def test_rolling_back_returns_to_who_held_it_before(team: Team, admin: User) -> None:
    run = trained(team, admin)
    promotion.assign_alias(team, admin, at(run, 50), "candidate")
    promotion.assign_alias(team, admin, at(run, 100), "candidate")
    alias = Alias.objects.get(team=team)
    move = promotion.roll_back(team, admin, alias, "worse in the field")
    assert (move.checkpoint, move.back, move.before) == (at(run, 50), True, at(run, 100))
    assert [one.comment for one in alias.moves.all()] == ["worse in the field", "", ""]
    promotion.release_alias(team, admin, alias)
    with pytest.raises(Refusal, match="is unassigned"):
        promotion.release_alias(team, admin, alias)


def test_what_is_about_to_be_deleted_gets_no_alias_and_what_has_one_is_not_deleted(team: Team, admin: User) -> None:
    run = trained(team, admin)
    removal.request_removal(team, admin, at(run, 50))
    with pytest.raises(Refusal, match="scheduled for deletion"):
        promotion.assign_alias(team, admin, at(run, 50), "candidate")
    promotion.assign_alias(team, admin, at(run, 100), "candidate")
    with pytest.raises(Refusal, match="alias candidate"):
        removal.request_removal(team, admin, at(run, 100))


@pytest.mark.parametrize("name", ["", "Über", "a b", "-x", "x" * 41, "a/b", "1st", "a\0b"])
def test_names_of_aliases(team: Team, admin: User, name: str) -> None:
    run = trained(team, admin)
    with pytest.raises(Refusal, match="An alias has"):
        promotion.assign_alias(team, admin, final_of(run), name)
    assert not Alias.across_teams.exists()


def test_another_team_and_who_has_left_do_nothing(team: Team, stranger: User, admin: User, asked: Proposal) -> None:
    elsewhere = stranger.memberships.get().team
    with pytest.raises(Refusal, match="no such checkpoint"):
        promotion.propose_alias(elsewhere, stranger, asked.checkpoint, "production")
    with pytest.raises(Refusal, match="not in team"):
        promotion.approve_proposal(team, stranger, asked)
    admin.memberships.update(active=False)
    with pytest.raises(Refusal, match="not in team"):
        promotion.approve_proposal(team, admin, asked)


@pytest.mark.django_db(transaction=True)
def test_two_admins_who_decide_at_once_decide_once(team: Team, teammate: User, admin: User) -> None:
    promotion.set_gate(team, admin, "production", None)
    run = trained(team, teammate)
    proposal = promotion.propose_alias(team, teammate, final_of(run), "production")
    other = make_member("other@example.org", team, Role.ADMIN)

    def decide(act: str, user: User) -> str:
        try:
            if act == "approve":
                promotion.approve_proposal(team, user, Proposal.across_teams.get(pk=proposal.pk))
            else:
                promotion.refuse_proposal(team, user, Proposal.across_teams.get(pk=proposal.pk), "no")
        except Refusal as error:
            return str(error)
        finally:
            connection.close()
        return act

    with ThreadPoolExecutor(4) as pool:
        tasks = [pool.submit(decide, act, user) for act, user in (("approve", admin), ("refuse", other), ("approve", other), ("refuse", admin))]
        said = [task.result(timeout=120) for task in tasks]
    winners = [one for one in said if one in ("approve", "refuse")]
    assert len(winners) == 1, said
    assert AliasMove.across_teams.count() == (winners == ["approve"])
    assert Entry.across_teams.filter(action__in=("policy.promote", "policy.refuse")).count() == 1


def test_pages_say_what_is_missing_and_why_a_button_is_off(client: Client, team: Team, teammate: User, admin: User, asked: Proposal) -> None:
    viewer = make_member("viewer@example.org", team, Role.VIEWER)
    client.force_login(viewer)
    page = client.get(f"/policies/{asked.checkpoint_id}/?alias=production").content.decode()
    assert "At least 20 blind votes" in page
    assert "your role is viewer" in page
    assert client.get(f"/policies/{asked.checkpoint_id}/download/").status_code == 403
    client.force_login(teammate)
    assert client.post(f"/policies/proposals/{asked.pk}/approve/").status_code == 403
    client.force_login(admin)
    assert "cannot be approved yet" in client.get(f"/policies/proposals/{asked.pk}/").content.decode()
    client.post(f"/policies/proposals/{asked.pk}/approve/")
    asked.refresh_from_db()
    assert asked.state == ProposalState.OPEN
    client.post(f"/policies/proposals/{asked.pk}/refuse/", {"comment": " "})
    asked.refresh_from_db()
    assert asked.state == ProposalState.OPEN  # a refusal says why
    client.post(f"/policies/proposals/{asked.pk}/refuse/", {"comment": "ask people first"})
    asked.refresh_from_db()
    assert (asked.state, asked.comment) == (ProposalState.REFUSED, "ask people first")
    assert Run.across_teams.count() == 1


def test_who_may_answer_is_told_and_who_asked_learns_the_answer(team: Team, teammate: User, admin: User, asked: Proposal) -> None:
    begin_all()
    assert not Notice.across_teams.exists()  # nobody had a rule when it was asked
    promotion.withdraw_proposal(team, teammate, asked)
    again = promotion.propose_alias(team, teammate, asked.checkpoint, asked.alias.name, "better at sums")
    assert [(one.user, "better at sums" in one.text) for one in Notice.across_teams.filter(kind="promotion")] == [(admin, True)]
    promotion.refuse_proposal(team, admin, again, "too few votes")
    one = Notice.across_teams.get(user=teammate)
    assert one.subject.endswith(": refused")
    assert "too few votes" in one.text
