"""The tree of an episode: a node is what one seat, or the world, adds. Imports no torch.

A context is what the policy sees at once: it begins at the nearest node by ``prompt`` on the way up, and the ids from there on are exactly what the
model was given and what it wrote. Nothing is ever decoded and encoded again.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, State

By = Literal["prompt", "policy", "world", "forced"]
Fate = Literal["kept", "cut", "abandoned"]
Finish = Literal["", "stop", "length", "turns"]


@dataclass(eq=False)
class Node:
    """Tokens of one writer. A turn is one node, or several in a row where it was branched, cut or forced in its middle; the last one is ``closed``.

    ``seat``: who writes the turn, or reads what the prompt or the world says. ``state``: of the world after it. ``logprobs`` and ``entropies`` (T,)
    in nats, 0 where nothing was sampled. ``facts`` and ``reward``: what the world says of the turn that ends here.
    """

    episode: "Episode" = field(repr=False)
    number: int
    parent: int | None
    seat: str
    by: By
    state: State = field(repr=False)
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list, repr=False)
    entropies: list[float] = field(default_factory=list, repr=False)
    text: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    reward: float | None = None
    fate: Fate = "kept"
    why: str = ""  # it was branched, cut or given up, in words
    version: int = 0  # updates of the weights that wrote it
    about: int | None = None  # of the prompt of a side question: the node it asks about
    trained: bool = False  # whether its tokens are in the loss
    closed: bool = False  # whether a turn ends here
    finish: Finish = ""  # why the episode ends here; empty: it goes on
    notes: dict[str, float] = field(default_factory=dict)  # value, visits, votes, gain: what search and credit know
    order: int = 0  # among siblings; its number, or that of the node it was split from

    @property
    def is_blank(self) -> bool:
        """A branch that nothing has been written in yet."""
        return self.by == "policy" and not self.ids and not self.closed


@dataclass(eq=False)
class Episode:
    """The nodes of one example, in the order they were made. Node 0 is its prompt; other nodes without a parent are the prompts of side questions."""

    example: Example
    group: int = 0
    member: int = 0
    nodes: list[Node] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)  # reaches RolloutBatch.notes
    shared: Literal["once", "every"] = "once"  # whether a turn that several leaves share is trained on in one row or in all
    bias: Any = field(default=None, repr=False)  # tensor (V,) added to the logits that its turns are sampled from, while it is set; None: nothing

    @property
    def root(self) -> Node:
        return self.nodes[0]

    def add(self, parent: Node | None, by: By, seat: str = POLICY, **more: Any) -> Node:
        """A new node below ``parent``, with its state unless ``more`` has one."""
        state = {"state": parent.state} if parent is not None else {}
        number = len(self.nodes)
        node = Node(self, number, None if parent is None else parent.number, seat, by, **{**state, "order": number, **more})
        self.nodes.append(node)
        return node

    def parent(self, node: Node) -> Node | None:
        return None if node.parent is None else self.nodes[node.parent]

    def children(self, node: Node) -> list[Node]:
        return [other for other in self.nodes if other.parent == node.number]

    def path(self, leaf: Node) -> list[Node]:
        """From the root to ``leaf``."""
        found, node = [leaf], self.parent(leaf)
        while node is not None:
            found.append(node)
            node = self.parent(node)
        return found[::-1]

    def context(self, node: Node) -> list[Node]:
        """What is seen at ``node``: its path from the last prompt on."""
        return last_context(self.path(node))

    def context_ids(self, node: Node) -> tuple[list[int], list[int]]:
        """Token ids of the prompt of its context, and of all that follows it."""
        prompt, *rest = self.context(node)
        return prompt.ids, [id_ for one in rest for id_ in one.ids]

    def turn(self, node: Node) -> list[Node]:
        """The nodes of the unfinished or just finished turn that ``node`` is the last of; none where a prompt or the world spoke last."""
        found = list[Node]()
        for one in reversed(self.context(node)):
            if one.by in ("prompt", "world") or (one.closed and one is not node):
                break
            found.append(one)
        return found[::-1]

    def turns(self, leaf: Node) -> list[list[Node]]:
        """The turns on the way to ``leaf``, whoever wrote them, the unfinished one included."""
        found, going = list[list[Node]](), list[Node]()
        for node in self.path(leaf):
            if node.by in ("policy", "forced"):
                going.append(node)
            if going and (node.closed or node.by in ("prompt", "world") or node is leaf):
                found.append(going)
                going = []
        return found

    def is_side(self, node: Node) -> bool:
        """Whether it belongs to a side question, which the world does not hear."""
        return self.path(node)[0].about is not None

    def leaves(self) -> list[Node]:
        """Where the kept branches of the episode end: of each node the branch that was made first comes first."""
        return [node for node in self.tips() if not self.is_side(node)]

    def side_leaves(self) -> list[Node]:
        """The answers to side questions."""
        return [node for node in self.tips() if self.is_side(node)]

    def tips(self) -> list[Node]:
        inner = {node.parent for node in self.nodes if node.fate == "kept"}
        found = [node for node in self.nodes if node.fate == "kept" and node.number not in inner]
        return sorted(found, key=lambda node: [one.order for one in self.path(node)])

    def split(self, node: Node, count: int, text: str, rest: str) -> Node:
        """Makes the first ``count`` tokens of a node a node of its own above it, whose ``text`` they are, and returns that one."""
        if not 0 < count < len(node.ids):
            raise ValueError(f"node {node.number} has {len(node.ids)} tokens and cannot be split after {count}")
        above = self.parent(node)
        part = {name: getattr(node, name)[:count] for name in ("ids", "logprobs", "entropies")}
        head = self.add(above, node.by, node.seat, **part, text=text)
        head.version, head.trained, head.fate, head.order = node.version, node.trained, node.fate, node.order
        node.parent, node.text = head.number, rest
        for name in part:
            setattr(node, name, getattr(node, name)[count:])
        return head

    def give_up(self, leaf: Node, fate: Fate, why: str, below: Node) -> None:
        """Takes what leads from ``below`` to ``leaf`` alone out of the episode; what other branches share stays."""
        node: Node | None = leaf
        while node is not None and node is not below:
            if any(child.fate == "kept" for child in self.children(node)):
                return
            node.fate, above = fate, self.parent(node)
            if above is below or above is None:
                node.why = why
            node = above


def last_context(path: list[Node]) -> list[Node]:
    start = max(place for place, node in enumerate(path) if node.by == "prompt")
    return path[start:]


def split_contexts(path: list[Node]) -> list[list[Node]]:
    """The contexts along a path, in order; each begins with its prompt."""
    found = list[list[Node]]()
    for node in path:
        if node.by == "prompt":
            found.append([])
        found[-1].append(node)
    return found


@dataclass(frozen=True)
class Place:
    """Where in an episode: turn ``turn`` (from 0; negative: from the end), after ``token`` of its tokens or ``characters`` of its text."""

    turn: int
    token: int = 0
    characters: int = 0


Messages = list[Message]
