"""From trees to rows: what is trained on, token by token."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from trainers.contract.events import Turn
from trainers.policies.sampling import Completion
from trainers.rollouts.tree import Episode, Node, split_contexts

Shared = Literal["once", "every"]
ROLES = {"policy": "assistant", "world": "tool", "forced": "given"}


@dataclass
class Row:
    """One context of one path. T tokens; ``nodes`` (T,): the node that each belongs to. ``mask`` (T,): 1 = trained on here.

    ``peers``: the rows it is compared with. ``weight``: factor on its advantage.
    """

    prompt_ids: list[int]
    ids: list[int]
    mask: list[int]
    nodes: list[int]
    episode: Episode
    leaf: Node  # of the path it is of
    seat: str
    peers: str
    weight: float = 1.0
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    place: int = 0  # of its context along the path

    @property
    def is_trained(self) -> bool:
        return any(self.mask)


def compile_rows(episode: Episode, shared: Shared = "once") -> list[Row]:
    """The rows of an episode: of each leaf every context, then the side questions. The first one is the row that is scored and shown.

    With ``once`` a token that several rows have is trained on in the first of them alone, and a row without tokens of its own is left out.
    """
    return compile_leaves([*episode.leaves(), *episode.side_leaves()], shared)


def compile_leaves(leaves: Sequence[Node], shared: Shared = "once", keep_all: bool = False) -> list[Row]:
    """Of any leaves, whatever episodes they are of. Contexts that leaves have in common are one row, unless ``keep_all``."""
    made, seen, trained = list[Row](), set[tuple[int, ...]](), set[int]()
    for leaf in leaves:
        for place, context in enumerate(split_contexts(leaf.episode.path(leaf))):
            key = tuple(id(node) for node in context)
            if key in seen and not keep_all:
                continue
            seen.add(key)
            row = make_row(leaf, context, trained if shared == "once" else set(), place)
            if row.is_trained or keep_all or not made:
                made.append(row)
    return made


def make_row(leaf: Node, context: Sequence[Node], trained: set[int], place: int = 0) -> Row:
    """``trained``: nodes that an earlier row trains on; those of this one are added."""
    prompt, *rest = context
    row = Row(prompt.ids, [], [], [], leaf.episode, leaf, prompt.seat, f"{leaf.episode.group}/{prompt.seat}", place=place)
    begun: Node | None = None
    for node in rest:
        start, end = len(row.ids), len(row.ids) + len(node.ids)
        row.ids += node.ids
        row.mask += [int(node.trained and id(node) not in trained)] * len(node.ids)
        row.nodes += [node.number] * len(node.ids)
        row.logprobs += node.logprobs
        row.entropies += node.entropies
        joins = begun is not None and not begun.closed and begun.by == node.by == "policy"
        row.turns = [*row.turns[:-1], Turn("assistant", row.turns[-1].start, end)] if joins else [*row.turns, Turn(ROLES[node.by], start, end)]
        begun = node
        if node.trained:
            trained.add(id(node))
    return row


def complete_row(row: Row, text: str) -> Completion:
    """The row as the one completion of its member. ``text``: of its ids."""
    finish = row.leaf.finish or "stop"
    return Completion(
        prompt_ids=row.prompt_ids,
        ids=row.ids,
        mask=row.mask,
        notes=dict(row.episode.notes),
        turns=row.turns,
        logprobs=row.logprobs,
        entropies=row.entropies,
        finish_reason=finish,
        text=text,
        row=row,
    )
