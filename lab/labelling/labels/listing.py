"""What the list of queues says of each, in a few queries however many items there are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from lab.labelling.labels.forecast import WilsonShare
from lab.labelling.labels.models import Item, ItemState, Judgement, JudgementState, Queue, QueueMember, QueueStatus
from lab.teams.accounts import projects
from lab.teams.accounts.models import Team, User


@dataclass
class QueueRow:
    """``mine``: items the person labelled or skipped. ``agreement``: of the items with two or more labels, those on which all agreed."""

    queue: Queue
    states: dict[str, int] = field(default_factory=dict)
    several: int = 0  # items with all of two or more labels
    agreed: int = 0
    labellers: int = 0
    mine: int = 0
    returned: int = 0  # of the person's labels, sent back by a reviewer
    paused: str = ""  # why the person is paused
    can_label: bool = False
    wants_mine: bool = False  # an item wants a label that the person has not given
    reviews: bool = False  # made a reviewer of this queue; leads review everywhere

    @property
    def items(self) -> int:
        return sum(count for state, count in self.states.items() if state != ItemState.DROPPED)

    @property
    def done(self) -> int:
        """Those that want no more labels, conflicts among them (as ``progress``)."""
        return self.items - self.waiting

    @property
    def waiting(self) -> int:
        return self.states.get(ItemState.OPEN, 0)

    @property
    def conflicts(self) -> int:
        return self.states.get(ItemState.CONFLICT, 0)

    @property
    def share(self) -> float:
        return self.done / self.items if self.items else 0.0

    @property
    def agreement(self) -> WilsonShare | None:
        return WilsonShare(self.agreed, self.several) if self.several else None

    @property
    def overdue(self) -> bool:
        due: datetime | None = self.queue.due
        return bool(due and due < timezone.now() and self.waiting and self.queue.status != QueueStatus.CLOSED)

    @property
    def to_label(self) -> bool:
        """Whether there may be something for the person to do."""
        return self.can_label and not self.paused and self.queue.status == QueueStatus.OPEN and bool(self.wants_mine or self.returned)


def build_queue_rows(queues: Sequence[Queue], user: User, annotates: bool) -> list[QueueRow]:
    rows = {queue.pk: QueueRow(queue) for queue in queues}
    counted = Item.objects.filter(queue__in=queues).order_by().values("queue", "state")
    several = Q(labels__gte=2) & ~Q(state__in=(ItemState.OPEN, ItemState.DROPPED))
    for count in counted.annotate(items=Count("pk"), several=Count("pk", filter=several)):
        row = rows[count["queue"]]
        row.states[count["state"]] = count["items"]
        row.several += count["several"]
        row.agreed += count["several"] if count["state"] == ItemState.DONE else 0
    add_people(rows, user)
    wanting = set(with_work(Queue.objects.filter(team__in={queue.team_id for queue in queues}, pk__in=rows), user).values_list("pk", flat=True))
    members = {member.queue_id: member for member in QueueMember.objects.filter(queue__in=queues, user=user)}
    for row in rows.values():
        member = members.get(row.queue.pk)
        row.can_label = annotates and (member.labels if member else not row.queue.assigned_only)
        row.wants_mine = row.queue.pk in wanting
        row.reviews = bool(annotates and member and member.reviews)
        if member and member.paused_at:
            row.paused = member.paused_reason or "paused"
    return list(rows.values())


def with_work(queues: QuerySet[Queue], user: User) -> QuerySet[Queue]:
    """Those with an item that wants a label of this person, whoever holds it at the moment."""
    judged = Judgement.objects.filter(item=OuterRef("pk"), user=user).exclude(state=JudgementState.WITHDRAWN)
    return queues.filter(Exists(Item.objects.filter(~Exists(judged), queue=OuterRef("pk"), state=ItemState.OPEN)))


def other_queues(queue: Queue, user: User) -> QuerySet[Queue]:
    """Open queues of the team in which the person may label and has something left to label, newest first."""
    member = QueueMember.objects.filter(queue=OuterRef("pk"), user=user)
    allowed = Exists(member.filter(labels=True, paused_at__isnull=True)) | (~Exists(member) & Q(assigned_only=False))
    queues = Queue.objects.of(queue.team).filter(allowed, status=QueueStatus.OPEN).exclude(pk=queue.pk)
    return with_work(queues, user).order_by("-created_at")


def add_people(rows: dict[int, QueueRow], user: User) -> None:
    """How many people labelled, and how much of it the person did."""
    judged = Judgement.objects.filter(queue__in=[row.queue for row in rows.values()]).exclude(state=JudgementState.WITHDRAWN).order_by()
    for queue, labellers in judged.values_list("queue").annotate(Count("user", distinct=True)):
        rows[queue].labellers = labellers
    returned = Count("pk", filter=Q(state=JudgementState.RETURNED))
    for queue, mine, back in judged.filter(user=user).values_list("queue").annotate(Count("pk"), back=returned):
        rows[queue].mine, rows[queue].returned = mine, back


@dataclass(frozen=True)
class QueueFilter:
    """What the list is narrowed to; anything not on offer counts as absent."""

    status: str = ""
    kind: str = ""
    words: str = ""
    project: str = ""  # id of one of the team's, or none

    @classmethod
    def read(cls, query: dict[str, str], statuses: Collection[str], kinds: Collection[str], team: Team) -> QueueFilter:
        status, kind = query.get("status", ""), query.get("kind", "")
        words = query.get("q", "").replace("\0", "").strip()[:100]
        return cls(
            status if status in statuses else "", kind if kind in kinds else "", words, projects.clean_project_filter(team, query.get("project", ""))
        )

    def __bool__(self) -> bool:
        return bool(self.status or self.kind or self.words or self.project)
