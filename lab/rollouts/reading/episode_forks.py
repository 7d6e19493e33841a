"""Where an episode forks: what all branches share, and what each of them goes on with. Also its contexts, where it was folded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lab.rollouts.annotations.turn_labels import TurnLabel
from lab.rollouts.reading.episode_nodes import NodeLine, number_seats, read_node
from lab.rollouts.trajectories.models import Rollout
from lab.rollouts.trajectories.turn_tree import TurnNode, TurnTree

MOST_FORKS = 20  # shown side by side
MOST_BRANCHES = 8  # of one state
MOST_SUFFIX = 40  # nodes


@dataclass(frozen=True)
class Branch:
    """What goes on from a state. ``reward``: of the whole episode, known of the rollout's own path alone; ``turn_rewards``: what the world paid for
    its turns, None where it pays by the episode. ``others``: numbers of the branches that it may be preferred to, with commas.
    """

    number: int
    title: str
    is_path: bool
    fate: str
    why: str
    lines: list[NodeLine]
    others: str
    label: TurnLabel
    turn_rewards: float | None = None
    reward: float | None = None
    is_preferred: bool = False  # by this person, to each of the others


@dataclass(frozen=True)
class Fork:
    """``reason``: why something was cut, in the words that were stored; empty where nothing says it."""

    state: int
    prefix: list[NodeLine]
    branches: list[Branch]
    reason: str = ""
    left_out: int = 0

    @property
    def is_cut(self) -> bool:
        return any(branch.fate for branch in self.branches)


@dataclass(frozen=True)
class Window:
    """One context of an episode that was folded: what the policy saw at once."""

    number: int  # from 1
    lines: list[NodeLine]
    characters: int
    share: float  # of the longest one, 0 to 100


@dataclass(frozen=True)
class EpisodeForks:
    forks: list[Fork] = field(default_factory=list)
    more: int = 0  # states that are not shown


def list_forks(tree: TurnTree, labels: Mapping[int, TurnLabel], rollout: Rollout) -> EpisodeForks:
    states = list(tree.forks)
    return EpisodeForks([build_fork(tree, state, labels, rollout) for state in states[:MOST_FORKS]], max(0, len(states) - MOST_FORKS))


def build_fork(tree: TurnTree, state: int, labels: Mapping[int, TurnLabel], rollout: Rollout) -> Fork:
    colours, all_branches = number_seats(tree), tree.forks[state]
    shown = all_branches[:MOST_BRANCHES]

    def tell(nodes: list[TurnNode]) -> list[NodeLine]:
        return [read_node(node, 0, colours.get(node.seat, 0), False, labels.get(node.number) or TurnLabel()) for node in nodes]

    branches = []
    for place, node in enumerate(shown):
        rest, others = tree.rest(node.number), [one.number for one in shown if one.number != node.number]
        paid = [one.reward for one in rest if one.reward is not None]
        [line] = tell([node])
        branches.append(
            Branch(
                number=node.number,
                title=name_branch(node, place, any(one.is_gone for one in shown)),
                is_path=node.is_path,
                fate=line.fate,
                why=line.why,
                lines=tell(rest[:MOST_SUFFIX]),
                others=",".join(map(str, others)),
                label=line.label,
                turn_rewards=sum(paid) if paid else None,
                reward=rollout.reward if node.is_path else None,
                is_preferred=bool(others) and set(others) <= set(line.label.over),
            )
        )
    reason = next((branch.why for branch in branches if branch.fate and branch.why), "")
    return Fork(state, tell(tree.path(state)), branches, reason, len(all_branches) - len(shown))


def name_branch(node: TurnNode, place: int, has_cut: bool) -> str:
    if node.is_gone:
        return "Discarded suffix" if node.fate == "cut" else "Abandoned branch"
    if node.is_path:
        return "New suffix" if has_cut else "This rollout"
    return f"Branch {place + 1}"


def list_windows(tree: TurnTree) -> list[Window]:
    """The contexts along the rollout's own path; empty where there is but one. A context begins with a prompt."""
    colours, found = number_seats(tree), list[list[TurnNode]]()
    for node in (one for one in tree.nodes.values() if one.is_path):
        if node.by == "prompt" or not found:
            found.append([])
        found[-1].append(node)
    if len(found) < 2:
        return []
    lengths = [sum(len(node.text) for node in nodes) for nodes in found]
    longest = max(*lengths, 1)
    lines = [[read_node(node, 0, colours.get(node.seat, 0), False, TurnLabel()) for node in nodes] for nodes in found]
    return [Window(place + 1, lines[place], lengths[place], 100 * lengths[place] / longest) for place in range(len(found))]
