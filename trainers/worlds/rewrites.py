"""Number paths: reach a goal by rewriting a number, one rule a turn. Every state can be checked, which is what search over steps needs.

``From 4 to 11 in 3 moves.`` wants ``<move>*2</move>``, gets ``<information>8 to 11</information>``, and ends the episode with ``<move>+3</move>``.
The built-in policy hardly learns it by reinforcement alone: a world for search, expert iteration and step pairs (BFS-Prover-V2, Astro, CPL).

With the option ``undo`` a dead end is told instead of ending the episode, and ``<back>1</back>`` returns to the number after the first move (0: to
the start), so that an episode can hold a whole search. Moves count along the path alone; all turns count towards the end of the episode.

With the option ``lists`` demonstrations also show prompts that end in ways not to go again, ``Not +3 +3, -1 *2.`` (TRT).
"""

import random
import re
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, State, Step, Tool, World, make_rewards, parse_call
from trainers.worlds.tool_use import write_call, write_information

RULES: dict[str, Callable[[int], int]] = {"+3": lambda number: number + 3, "*2": lambda number: number * 2, "-1": lambda number: number - 1}
MOST = 99  # beyond it, and below 0, is a dead end
DEPTHS = {"easy": (1, 2), "medium": (2, 3), "hard": (3, 4)}  # moves of the shortest way
PROBLEM = re.compile(r"From (\d{1,2}) to (\d{1,2}) in (\d) moves\.")


BACK = Tool("back", "Goes back to the number after so many moves.")


class RewritesConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    spare: int = Field(1, ge=0, le=3, title="Spare moves", description="Moves an episode may take beyond the shortest way.")
    undo: bool = Field(False, title="Going back", description="Dead ends can be left: a second tool goes back to an earlier number.")
    lists: bool = Field(
        False, title="Lists of wrong ways", description="Half of the demonstrations have a list of ways in the prompt that they avoid."
    )


class Rewrites(World):
    name = "rewrites"
    title = "Number paths"
    summary = "Rewrite a number by +3, *2 and -1 until it is the goal: every step can be checked, dead ends included."
    Config = RewritesConfig
    config: RewritesConfig
    difficulties = {"easy": "1 or 2 moves at least.", "medium": "2 or 3 moves at least.", "hard": "3 or 4 moves at least."}
    demonstrations = (
        "Of mixed quality by design, so that reinforcement has strategies to choose between: 60 % go the shortest way, 40 % make moves at random"
        " until none is left. With going back, half of the former take a wrong branch first."
    )
    tools = (Tool("move", f"Rewrites the number by one rule: {', '.join(RULES)}."),)
    max_turns = 8
    max_turn_tokens = 8
    episode_tokens = 64
    wordy_options = frozenset({"undo", "lists"})

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        if self.config.undo:
            self.tools = (*type(self).tools, BACK)  # type: ignore[misc, assignment]  # of this object alone
            self.episode_tokens = 112  # type: ignore[misc]
        self.rewards = make_rewards(
            self,
            {
                "correct": ("1 when the number has become the goal.", 1.0),
                "shortest": ("1 when it took no more moves than the shortest way.", 0.0),
                "format": ("1 when every turn is one rule.", 0.0),
            },
        )

    def example(self, rng: random.Random, difficulty: str) -> Example:
        depth = rng.randint(*DEPTHS[difficulty])
        while True:
            start, goal = rng.randint(1, 20), rng.randint(1, 60)
            way = find_way(start, goal, depth)
            if way is not None and len(way) == depth:
                return make_example(start, goal, depth + self.config.spare, depth)

    def draw_demonstrations(self, count: int, seed: int, difficulty: str) -> list[Example]:
        """With the option, half of them name one to three ways that lead elsewhere."""
        drawn = super().draw_demonstrations(count, seed, difficulty)
        if not self.config.lists:
            return drawn
        rng = random.Random(f"{self.name}/{difficulty}/lists/{seed}")
        return [list_wrong_ways(example, draw_wrong_ways(example, rng)) if rng.random() < 0.5 else example for example in drawn]

    def begin(self, example: Example) -> State:
        start = example.data.get("start", 0)
        undo = {"trail": [start], "stuck": False, "turns": 0} if self.config.undo else {}
        return {"number": start, "moves": 0, "reached": False, "over": False, "errors": 0, **undo}

    def step(self, example: Example, state: State, seat: str, text: str, rng: random.Random) -> Step:
        call = parse_call(text, self.tools)
        if call is not None and call[0] == BACK.name and can_return(state, call[1]):
            return self.go_back(example, state, int(call[1]))
        if call is None or call[1] not in RULES or state.get("stuck"):
            return Step({**state, "errors": state["errors"] + 1, "over": True}, done=True, facts={"error": "not one of the rules"})
        number, moves, goal = RULES[call[1]](state["number"]), state["moves"] + 1, example.data.get("goal")
        after, facts = {**state, "number": number, "moves": moves}, {"tool": "move", "query": call[1], "number": number}
        if self.config.undo:
            after |= {"trail": [*state["trail"], number], "turns": state["turns"] + 1}
        if number == goal:
            return Step({**after, "reached": True, "over": True}, done=True, reward=1.0, facts=facts)
        error = "a dead end" if not 0 <= number <= MOST else "no moves are left" if moves >= example.data.get("moves", 0) else ""
        if error and not self.config.undo:
            return Step({**after, "over": True}, done=True, reward=0.0, facts=facts | {"error": error})
        if error:
            return self.go_on({**after, "stuck": True}, "dead end", facts | {"error": error})
        return self.go_on(after, f"{number} to {goal}", facts)

    def go_on(self, state: State, said: str, facts: dict[str, Any]) -> Step:
        """The world's answer, unless no turn is left."""
        if state.get("turns", 0) >= self.max_turns:
            return Step({**state, "over": True}, done=True, reward=0.0, facts=facts | {"error": "no turns are left"})
        return Step(state, write_information(said), facts=facts)

    def go_back(self, example: Example, state: State, moves: int) -> Step:
        number = state["trail"][moves]
        after = {**state, "number": number, "moves": moves, "trail": state["trail"][: moves + 1], "stuck": False, "turns": state["turns"] + 1}
        return self.go_on(after, f"{number} to {example.data.get('goal')}", {"tool": BACK.name, "query": str(moves), "number": number})

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        shortest = example.data.get("shortest")
        return {
            POLICY: {
                "correct": float(state["reached"]),
                "shortest": None if shortest is None else float(state["reached"] and state.get("turns", state["moves"]) <= shortest),
                "format": float(not state["errors"]),
            }
        }

    def way(self, example: Example, state: State) -> list[str]:
        if state["over"]:
            raise LookupError("the episode is over")
        room = self.max_turns - state.get("turns", 0)
        rules = None
        if not state.get("stuck"):
            rules = find_way(state["number"], example.data["goal"], min(room, example.data["moves"] - state["moves"]))
        if rules is not None:
            return [write_call("move", rule) for rule in rules]
        if self.config.undo:
            return self.find_return(example, state)
        raise LookupError("the goal is out of reach")

    def find_return(self, example: Example, state: State) -> list[str]:
        """The way from the last earlier number from which there is one, with the going back to it. Raises LookupError."""
        room = self.max_turns - state["turns"] - 1
        for moves in reversed(range(len(state["trail"]) - 1)):
            rules = find_way(state["trail"][moves], example.data["goal"], min(room, example.data["moves"] - moves))
            if rules is not None:
                return [write_call(BACK.name, moves), *(write_call("move", rule) for rule in rules)]
        raise LookupError("the goal is out of reach")

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        if rng.random() < 0.6:
            takes_branch = self.config.undo and rng.random() < 0.5
            return self.tell_turns(example, self.write_detour(example, rng) if takes_branch else self.way(example, self.begin(example)))
        if "wrong" in example.data:
            return self.tell_turns(example, [write_call("move", rule) for rule in draw_way(example, rng, example.data["wrong"])])
        return self.tell_turns(example, self.wander(example, rng, self.max_turns)[0])

    def wander(self, example: Example, rng: random.Random, most: int) -> tuple[list[str], State]:
        """Up to ``most`` turns at random, and where they lead."""
        state, calls = self.begin(example), list[str]()
        while not state["over"] and len(calls) < most:
            is_stuck = state.get("stuck")
            calls.append(write_call(BACK.name, rng.randrange(len(state["trail"]) - 1)) if is_stuck else write_call("move", rng.choice(list(RULES))))
            state = self.step(example, state, POLICY, calls[-1], rng).state
        return calls, state

    def write_detour(self, example: Example, rng: random.Random) -> list[str]:
        """One or two moves at random, back from them, and the way; the way alone where they have led to the goal."""
        calls, state = self.wander(example, rng, rng.randint(1, 2))
        try:
            return [*calls, *self.find_return(example, state)] if not state["over"] else self.way(example, self.begin(example))
        except LookupError:
            return self.way(example, self.begin(example))

    def read(self, text: str) -> Example | None:
        """``From 4 to 11 in 3 moves.``, where there is a way in so many moves."""
        found = PROBLEM.fullmatch(text) if text.isascii() else None
        if found is None:
            return None
        start, goal, moves = map(int, found.groups())
        way = find_way(start, goal, min(moves, self.max_turns)) if start != goal else None
        return None if way is None else make_example(start, goal, moves, len(way))


def can_return(state: State, argument: str) -> bool:
    """Whether it is the number of a move before the last one."""
    return argument.isascii() and argument.isdigit() and len(argument) == 1 and int(argument) < len(state["trail"]) - 1


def make_example(start: int, goal: int, moves: int, shortest: int) -> Example:
    data = {"start": start, "goal": goal, "moves": moves, "shortest": shortest}
    return Example([Message("user", f"From {start} to {goal} in {moves} moves.")], str(goal), data)


def find_way(start: int, goal: int, most: int) -> list[str] | None:
    """The rules of a shortest way of ``most`` moves or fewer, by breadth first; None where there is none."""
    ways: dict[int, list[str]] = {start: []}
    waiting = deque([start])
    while waiting:
        number = waiting.popleft()
        if number == goal:
            return ways[number]
        if len(ways[number]) >= most:
            continue
        for rule, rewrite in RULES.items():
            reached = rewrite(number)
            if 0 <= reached <= MOST and reached not in ways:
                ways[reached] = [*ways[number], rule]
                waiting.append(reached)
    return None


def list_wrong_ways(example: Example, ways: Sequence[str]) -> Example:
    """The example with a list of ways (``"+3 +3"``) that are not to be gone again; as it is where there is none."""
    if not ways:
        return example
    prompt = [*example.prompt[:-1], Message("user", f"{example.prompt[-1].content} Not {', '.join(ways)}.")]
    return Example(prompt, example.reference, {**example.data, "wrong": list(ways)})


def draw_wrong_ways(example: Example, rng: random.Random) -> list[str]:
    """One to three different ways that do not reach the goal; fewer where chance finds no more."""
    found = list[str]()
    for _ in range(rng.randint(1, 3)):
        way = draw_way(example, rng, found)
        if not reaches_goal(example, way) and " ".join(way) not in found:
            found.append(" ".join(way))
    return found


def draw_way(example: Example, rng: random.Random, others: Sequence[str]) -> list[str]:
    """Moves at random until the episode ends; where chance allows it, none of ``others``."""
    way = list[str]()
    for _ in range(10):
        way, number = [], example.data["start"]
        while len(way) < example.data["moves"] and number != example.data["goal"] and 0 <= number <= MOST:
            way.append(rng.choice(list(RULES)))
            number = RULES[way[-1]](number)
        if " ".join(way) not in others:
            break
    return way


def reaches_goal(example: Example, way: Sequence[str]) -> bool:
    number = example.data["start"]
    for rule in way:
        number = RULES[rule](number)
    return bool(number == example.data["goal"])
