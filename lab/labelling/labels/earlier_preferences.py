"""Which answer of a pair earlier labels preferred, for questions about two pairs: in which of them is it clearer which answer is better?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from django.db.models import Q

from lab.labelling.labels.implied_preferences import derive_preferences
from lab.labelling.labels.models import COUNTING, Item, ItemState, JudgementState, Preference, Queue

ACCEPTED = Q(judgement__queue__reviewed=False, judgement__state__in=COUNTING) | Q(
    judgement__queue__reviewed=True, judgement__state=JudgementState.ACCEPTED
)


def find_preferred_rollouts(queue: Queue, pairs: Iterable[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """The rollout of each pair of rollouts that most counting votes of the team's other queues preferred; a pair without votes, or with as many on
    either side, is left out. An item that was decided has one vote, its final answer. One query, or two where items were decided."""
    pairs = set(pairs)
    ids = {rollout for pair in pairs for rollout in pair}
    if not ids:
        return {}
    rows = Preference.objects.filter(ACCEPTED, judgement__queue__team=queue.team_id, chosen__in=ids, rejected__in=ids)
    votes: Counter[tuple[int, int]] = Counter()
    decided: set[int] = set()
    for item, state, chosen, rejected in rows.exclude(judgement__queue=queue).values_list("item", "item__state", "chosen", "rejected"):
        if state == ItemState.SETTLED:
            decided.add(item)
        else:
            votes[chosen, rejected] += 1
    for item_of in Item.objects.of(queue.team_id).filter(pk__in=decided) if decided else ():
        final = item_of.final or {}
        votes.update(derive_preferences(final.get("verdict", ""), final.get("tiers"), item_of.rollouts))
    leads = {(a, b): votes[a, b] - votes[b, a] for a, b in pairs}
    return {(a, b): a if lead > 0 else b for (a, b), lead in leads.items() if lead}
