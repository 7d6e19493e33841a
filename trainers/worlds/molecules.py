"""Strings of a small grammar with two scores: bind a target, and keep away from pairs of atoms. A test bed for rewards at odds, after PaccMann.

``Bind NOOS without OO, SN in 6 atoms.`` wants ``<answer>NOCOS</answer>``: the atoms of the target stand in it in their order, anything between them,
and no forbidden pair stands side by side. The target itself binds best in the fewest atoms, and has a forbidden pair more often than not.

    molecule: unit unit ...       unit: atom, then any number of ( molecule )       bond: =, between a unit and an atom       atoms: C N O S

Affinity is the longest common subsequence of the target and the atoms, as a share of the target; safety is 1 / (1 + forbidden pairs), whatever
brackets and bonds stand between two atoms. Their weights are the task's reward weights. PaccMann (arXiv 2005.13285) designs antiviral molecules with
predictors of binding and of toxicity; here rules on strings stand for both, and no number says anything of chemistry.
"""

import random
from dataclasses import replace
from typing import Any

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, State, Step, make_rewards
from trainers.worlds.tool_use import ToolWorld, write_answer

ATOMS, SPACER = "CNOS", "C"  # the spacer is in no forbidden pair
SIZES = {"easy": (3, 1), "medium": (4, 2), "hard": (5, 3)}  # atoms of the target, forbidden pairs


class Molecules(ToolWorld):
    name = "molecules"
    title = "Strings with two scores"
    summary = "Write a string of a small grammar that contains a target and avoids forbidden pairs: two rewards at odds."
    difficulties = {name: f"A target of {atoms} atoms, {pairs} forbidden pair{'s' * (pairs > 1)}." for name, (atoms, pairs) in SIZES.items()}
    demonstrations = "Of mixed quality by design: 35 % are right, 35 % are the target as it stands, 30 % are valid strings at random."
    max_turns = 1
    max_turn_tokens = 24
    episode_tokens = 32

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        correct = ("1 when the target stands in it whole and no forbidden pair does.", 1.0)
        form = ("1 when the answer is a string of the grammar with no more atoms than it may have.", 0.0)
        affinity = ("Share of the target that stands in the string in its order; 0 for no string of the grammar.", 0.0)
        safety = ("1 / (1 + forbidden pairs side by side); 0 for no string of the grammar.", 0.0)
        self.rewards = make_rewards(self, {"correct": correct, "affinity": affinity, "safety": safety, "format": form})

    def example(self, rng: random.Random, difficulty: str) -> Example:
        atoms, count = SIZES[difficulty]
        target = "".join(rng.choice(ATOMS) for _ in range(atoms))
        within = sorted({pair for pair in list_pairs(target) if SPACER not in pair})
        others = [one + other for one in ATOMS for other in ATOMS if SPACER not in one + other]
        forbidden = rng.sample(within, 1) if within else []
        forbidden += rng.sample([pair for pair in others if pair not in forbidden], count - len(forbidden))
        spaced = space_target(target, forbidden)
        data: dict[str, Any] = {"target": target, "forbidden": sorted(forbidden), "most": len(spaced) + rng.randint(0, 1)}
        prompt = f"Bind {target} without {', '.join(data['forbidden'])} in {data['most']} atoms."
        return Example([Message("user", prompt)], spaced, data)

    def begin_calls(self, example: Example) -> State:
        return {}

    def step(self, example: Example, state: State, seat: str, text: str, rng: random.Random) -> Step:
        made = super().step(example, state, seat, text, rng)
        return replace(made, reward=self.outcome(example, made.state)[POLICY]["correct"])

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        data, atoms = example.data, read_atoms(state["answer"] or "")
        if not atoms or len(atoms) > data.get("most", 0):
            return {POLICY: {"correct": 0.0, "affinity": 0.0, "safety": 0.0, "format": 0.0}}
        affinity = measure_common(data["target"], atoms) / len(data["target"])
        safety = 1 / (1 + sum(pair in data["forbidden"] for pair in list_pairs(atoms)))
        return {POLICY: {"correct": float(affinity == safety == 1), "affinity": affinity, "safety": safety, "format": 1.0}}

    def way(self, example: Example, state: State) -> list[str]:
        self.check_open(state)
        return [write_answer(example.reference)]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        kind, data = rng.random(), example.data
        text = example.reference if kind < 0.35 else data["target"] if kind < 0.7 else draw_molecule(rng, data["most"])
        return self.tell_turns(example, [write_answer(text)])


def list_pairs(atoms: str) -> list[str]:
    return [atoms[place : place + 2] for place in range(len(atoms) - 1)]


def space_target(target: str, forbidden: list[str]) -> str:
    """The target with a spacer in every forbidden pair."""
    return target[0] + "".join(f"{SPACER}{pair[1]}" if pair in forbidden else pair[1] for pair in list_pairs(target))


def draw_molecule(rng: random.Random, most: int) -> str:
    """A string of the grammar with 2 to ``most`` atoms."""
    atoms = [rng.choice(ATOMS) for _ in range(rng.randint(2, most))]
    return atoms[0] + "".join(rng.choices(("{}", "={}", "({})"), (4, 1, 1))[0].format(atom) for atom in atoms[1:])


def read_atoms(text: str) -> str:
    """The atoms of a string of the grammar, brackets and bonds left out; empty for any other text."""
    depth, before = 0, ""
    for sign in text:
        if sign == ")":
            depth -= 1
        can_follow = {"(": before in ATOMS or before == ")", ")": before in ATOMS or before == ")", "=": before in ATOMS or before == ")"}.get(
            sign, sign in ATOMS
        )
        if not (before or sign in ATOMS) or not can_follow or depth < 0:
            return ""
        depth += sign == "("
        before = sign
    return "".join(sign for sign in text if sign in ATOMS) if not depth and before not in ("", "=") else ""


def measure_common(one: str, other: str) -> int:
    """Length of the longest common subsequence."""
    row = [0] * (len(other) + 1)
    for sign in one:
        above = row
        row = [0]
        for place, against in enumerate(other):
            row.append(above[place] + 1 if sign == against else max(above[place + 1], row[place]))
    return row[-1]
