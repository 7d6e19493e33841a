"""Labels on the turns of an episode: a verdict on one, and which of two branches of one state is better.

Nothing is deleted: a label that is changed or taken back gets the time it was withdrawn at, and counts no more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.db.utils import IntegrityError
from django.utils import timezone

from lab.lib.numbers import MAX_INTEGER, parse_whole_number
from lab.lib.refusals import Refusal
from lab.rollouts.annotations.models import StepVerdict, TurnPreference, TurnVerdict
from lab.rollouts.annotations.verbs import AnnotationChange
from lab.rollouts.trajectories.models import Rollout
from lab.rollouts.trajectories.turn_tree import TurnNode, TurnTree
from lab.teams.accounts.models import Team, User

VERDICTS = (StepVerdict.GOOD, StepVerdict.BAD)
MOST_SNAPSHOT = 10_000  # characters
MOST_REJECTED = 50  # branches of one state


@dataclass
class TurnLabel:
    """What was said of the turn at one node. ``over`` and ``under``: nodes that this person prefers it to, or to it; ``wins`` and ``losses``: how
    often anybody did.
    """

    mine: str = ""
    others: list[TurnVerdict] = field(default_factory=list)
    over: list[int] = field(default_factory=list)
    under: list[int] = field(default_factory=list)
    preferences: list[TurnPreference] = field(default_factory=list)  # by others
    wins: int = 0
    losses: int = 0


def read_turn_labels(user: User, rollout: Rollout) -> defaultdict[int, TurnLabel]:
    """Node of the rollout's tree -> what was said of its turn."""
    found: defaultdict[int, TurnLabel] = defaultdict(TurnLabel)
    for verdict in TurnVerdict.objects.filter(rollout=rollout, withdrawn_at=None).select_related("user"):
        if verdict.user_id == user.pk:
            found[verdict.node].mine = verdict.verdict
        else:
            found[verdict.node].others.append(verdict)
    for row in TurnPreference.objects.filter(rollout=rollout, against=rollout, withdrawn_at=None).select_related("user"):
        chosen, rejected = found[row.chosen], found[row.rejected]
        chosen.wins += 1
        rejected.losses += 1
        if row.user_id == user.pk:
            chosen.over.append(row.rejected)
            rejected.under.append(row.chosen)
        else:
            chosen.preferences.append(row)
    return found


def judge_turn(user: User, rollout: Rollout, tree: TurnTree, node: str, verdict: str) -> AnnotationChange:
    """The person's verdict on the turn that is written from a node on; empty takes it back. Raises Refusal."""
    if verdict and verdict not in VERDICTS:
        raise Refusal("A turn is judged good or bad.", field="verdict", status=400)
    number = find_written_node(tree, node).number
    with transaction.atomic():
        mine = TurnVerdict.objects.filter(rollout=rollout, user=user, node=number, withdrawn_at=None)
        same = mine.filter(verdict=verdict).first()
        if same is not None:
            return AnnotationChange(same.pk, False)
        before = mine.update(withdrawn_at=timezone.now())
        if not verdict:
            return AnnotationChange(None, bool(before))
        return create_label_once(TurnVerdict, rollout=rollout, user=user, node=number, verdict=verdict, snapshot=take_snapshot(tree, number))


def prefer_branch(user: User, rollout: Rollout, tree: TurnTree, chosen: str, rejected: str, withdraw: bool = False) -> AnnotationChange:
    """Of the branches of one state the best one: ``chosen`` over each of ``rejected`` (numbers with commas). ``withdraw`` takes back whatever the
    person said of these pairs. Raises Refusal.
    """
    better, others = find_written_node(tree, chosen), [find_written_node(tree, one) for one in rejected.split(",")[:MOST_REJECTED]]
    if any(other.number == better.number or other.parent is None or other.parent != better.parent for other in others):
        raise Refusal("These are not branches of one state. Reload the page.", field="rejected", status=400)
    with transaction.atomic():
        changes = [prefer_to_one(user, rollout, tree, better.number, other.number, withdraw) for other in others]
    return AnnotationChange(changes[0].made, any(change.fresh for change in changes))


def prefer_to_one(user: User, rollout: Rollout, tree: TurnTree, better: int, worse: int, withdraw: bool) -> AnnotationChange:
    mine = TurnPreference.objects.filter(rollout=rollout, against=rollout, user=user, withdrawn_at=None)
    mine = mine.filter(Q(chosen=better, rejected=worse) | Q(chosen=worse, rejected=better))
    same = mine.filter(chosen=better).first()
    if same is not None and not withdraw:
        return AnnotationChange(same.pk, False)
    before = mine.update(withdrawn_at=timezone.now())
    if withdraw:
        return AnnotationChange(None, bool(before))
    texts = {"chosen_text": take_snapshot(tree, better), "rejected_text": take_snapshot(tree, worse)}
    return create_label_once(TurnPreference, rollout=rollout, against=rollout, user=user, chosen=better, rejected=worse, **texts)


def prefer_across_rollouts(user: User, own: tuple[Rollout, TurnTree, str], other: tuple[Rollout, TurnTree, str], verdict: str) -> AnnotationChange:
    """Of turns that two members of a group took in the same state the better one: ``verdict`` better (the other's), worse, or empty: taken back.

    Raises Refusal.
    """
    if verdict not in ("", "better", "worse"):
        raise Refusal("Another turn is better or worse.", field="verdict", status=400)
    (rollout, tree, node), (member, member_tree, member_node) = own, other
    first, second = find_written_node(tree, node).number, find_written_node(member_tree, member_node).number
    state = tree.find_state(first)
    if rollout.pk == member.pk or rollout.prompt_id != member.prompt_id or state is None or state != member_tree.find_state(second):
        raise Refusal("These turns do not begin in the same state. Reload the page.", field="other", status=400)
    mine = {"rollout": rollout, "chosen": first, "against": member, "rejected": second}
    theirs = {"rollout": member, "chosen": second, "against": rollout, "rejected": first}
    wanted = {"better": theirs, "worse": mine}.get(verdict)
    with transaction.atomic():
        said = TurnPreference.objects.filter(user=user, withdrawn_at=None, rollout__in=[rollout, member]).filter(Q(**mine) | Q(**theirs))
        same = said.filter(**wanted).first() if wanted else None
        if same is not None:
            return AnnotationChange(same.pk, False)
        before = said.update(withdrawn_at=timezone.now())
        if wanted is None:
            return AnnotationChange(None, bool(before))
        texts = [take_snapshot(tree, first), take_snapshot(member_tree, second)]
        chosen, rejected = texts if verdict == "worse" else texts[::-1]
        return create_label_once(TurnPreference, user=user, **wanted, chosen_text=chosen, rejected_text=rejected)


def create_label_once(model: Any, **values: Any) -> AnnotationChange:
    """The row; the one there is where the same person said the same a moment ago, in another window."""
    try:
        with transaction.atomic():
            return AnnotationChange(model.objects.create(**values).pk)
    except IntegrityError:
        key = {name: value for name, value in values.items() if name in ("rollout", "user", "node", "chosen", "against", "rejected")}
        return AnnotationChange(model.objects.filter(**key, withdrawn_at=None).values_list("pk", flat=True).first(), False)


def find_written_node(tree: TurnTree, text: str) -> TurnNode:
    number = parse_whole_number(text, MAX_INTEGER)
    node = tree.nodes.get(number) if number is not None else None
    if node is None or not node.is_written:
        raise Refusal("This rollout has no such turn. Reload the page.", field="node", status=400)
    return node


def take_snapshot(tree: TurnTree, number: int) -> str:
    return tree.turn_text(number)[:MOST_SNAPSHOT]


def export_turn_labels(rollouts: Sequence[Rollout]) -> defaultdict[int, list[dict[str, Any]]]:
    """Rollout -> all that counts of what people said of its turns, in the order of the nodes."""
    found: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    with_nodes = [rollout for rollout in rollouts if rollout.nodes]
    if not with_nodes:
        return found
    for verdict in TurnVerdict.objects.filter(rollout__in=with_nodes, withdrawn_at=None):
        found[verdict.rollout_id].append({"node": verdict.node, "verdict": verdict.verdict, "labeller": verdict.user_id})
    for row in TurnPreference.objects.filter(rollout__in=with_nodes, withdrawn_at=None):
        against = {} if row.against_id == row.rollout_id else {"against": row.against_id}
        found[row.rollout_id].append({"node": row.chosen, "preferred_to": row.rejected, **against, "labeller": row.user_id})
    return found


def count_turn_labels(team: Team) -> int:
    return TurnVerdict.objects.of(team).filter(withdrawn_at=None).count() + TurnPreference.objects.of(team).filter(withdrawn_at=None).count()
