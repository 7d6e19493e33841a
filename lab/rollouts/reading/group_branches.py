"""Where other members of a rollout's group went on otherwise from a state that it was in too: branches of one state in several rollouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from django.db.models import Q

from lab.rollouts.annotations.models import TurnPreference
from lab.rollouts.trajectories.models import Rollout
from lab.rollouts.trajectories.text_pieces import Piece, iterate_text_pieces
from lab.rollouts.trajectories.turn_tree import TurnTree, read_turn_trees
from lab.teams.accounts.models import User

MOST_MEMBERS = 16
MOST_STATES = 12
SHOWN_TEXT = 600  # characters of a turn


@dataclass(frozen=True)
class OtherBranch:
    """A turn that other members took. ``place``: rollout:node of the one with the best reward, or of the one that was compared. ``said``: better,
    worse or nothing, by this person.
    """

    place: str
    rollout: int
    pieces: list[Piece]
    is_cut: bool
    samples: list[int]
    reward: float | None
    said: str = ""


@dataclass(frozen=True)
class SharedState:
    state: int
    own: int  # node by which the rollout itself goes on
    own_pieces: list[Piece]
    branches: list[OtherBranch]


def find_shared_states(user: User, rollout: Rollout, tree: TurnTree) -> list[SharedState]:
    """States of the rollout's own path, from its first answer of the world on, at which other members of the group took another turn."""
    if not tree.nodes:
        return []
    group = Rollout.objects.filter(run=rollout.run_id, run__team=rollout.run.team_id, phase=rollout.phase, step=rollout.step, group=rollout.group)
    members = list(group.filter(attempt=rollout.attempt, prompt=rollout.prompt_id).exclude(pk=rollout.pk).order_by("sample", "pk")[:MOST_MEMBERS])
    trees = read_turn_trees(members)
    if not trees:
        return []
    by_key = {key: (state, own) for key, state, own in tree.list_path_states() if key}
    found: dict[int, dict[str, list[tuple[Rollout, int]]]] = {}
    for member in members:
        for key, _, node in trees[member.pk].list_path_states() if member.pk in trees else ():
            if key not in by_key:
                continue
            state, _ = by_key[key]
            text = trees[member.pk].turn_text(node)
            if text and text not in {tree.turn_text(one.number) for one in tree.branches(state)}:
                found.setdefault(state, {}).setdefault(text, []).append((member, node))
    said = read_own_preferences(user, rollout)
    own_branch = dict(by_key.values())
    return [make_shared_state(tree, state, own_branch[state], found[state], trees, said) for state in sorted(found)[:MOST_STATES]]


def read_own_preferences(user: User, rollout: Rollout) -> Mapping[tuple[int, str], str]:
    """(own node, rollout:node of another member) -> better or worse: what this person said of the other one's turn."""
    found: dict[tuple[int, str], str] = {}
    rows = TurnPreference.objects.of(rollout.run.team_id).filter(Q(rollout=rollout) | Q(against=rollout), user=user, withdrawn_at=None)
    for chosen_in, chosen, rejected_in, rejected in rows.values_list("rollout_id", "chosen", "against_id", "rejected"):
        if chosen_in == rejected_in:
            continue
        if chosen_in == rollout.pk:
            found[chosen, f"{rejected_in}:{rejected}"] = "worse"
        else:
            found[rejected, f"{chosen_in}:{chosen}"] = "better"
    return found


def make_shared_state(
    tree: TurnTree,
    state: int,
    own: int,
    turns: Mapping[str, Sequence[tuple[Rollout, int]]],
    trees: Mapping[int, TurnTree],
    said: Mapping[tuple[int, str], str],
) -> SharedState:
    branches = []
    for text, places in turns.items():
        member, node = max(places, key=lambda place: (place[0].reward is not None, place[0].reward or 0.0, -place[0].pk))
        rewards = [one.reward for one, _ in places if one.reward is not None]
        names = [f"{one.pk}:{number}" for one, number in places]
        labelled = next((name for name in names if (own, name) in said), f"{member.pk}:{node}")
        branches.append(
            OtherBranch(
                place=labelled,
                rollout=member.pk,
                pieces=list(iterate_text_pieces(text[:SHOWN_TEXT])),
                is_cut=len(text) > SHOWN_TEXT,
                samples=[one.sample for one, _ in places],
                reward=fmean(rewards) if rewards else None,
                said=said.get((own, labelled), ""),
            )
        )
    return SharedState(state, own, list(iterate_text_pieces(tree.turn_text(own)[:SHOWN_TEXT])), branches)
