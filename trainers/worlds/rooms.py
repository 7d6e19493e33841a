"""A row of rooms with a key and a locked door: many short moves, one of which cannot be taken back.

``You are in room 2 of 4. The key is in room 1. The door is in room 4.`` wants ``<do>left</do>``, gets ``<information>room 1</information>``, goes on
with ``<do>take</do>``, walks to the door and ends the episode with ``<do>open</do>``. Opening without the key ends it too: the one bad move that
nothing mends, which critical-step methods (CSO, GUI-Shepherd) are to find. With the option ``judged`` the policy has a second seat, which says of a
move whether it is good (RLAnything).
"""

import random
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, Seat, State, Step, Tool, World, make_rewards, parse_call
from trainers.worlds.room_moves import MOVES, choose_move, draw_step, write_flawed_verdict, write_step_question, write_verdict
from trainers.worlds.tool_use import write_call, write_information

ROOMS = {"easy": 4, "medium": 5, "hard": 6}
JUDGE = "judge"
FLAWED = 0.3  # share of the demonstrated verdicts that take another move for the best


class RoomsConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    hidden: bool = Field(False, title="Hidden key", description="The prompt does not say where the key is: a room shows it on entering.")
    slips: float = Field(0.0, ge=0, le=0.5, title="Slips", description="Share of steps that lead nowhere, the same for all of a group.")
    judged: bool = Field(
        False,
        title="Judge",
        description="A third of the demonstrations judge a move in place of making moves: for methods whose policy judges its own.",
    )


class Rooms(World):
    name = "rooms"
    title = "Rooms with a key"
    summary = "Walk along a row of rooms, take the key and open the door: long episodes of short moves."
    Config = RoomsConfig
    config: RoomsConfig
    seats = (Seat(POLICY, "The policy that is trained."), Seat(JUDGE, "With the option judged: says of a move whether it is good."))
    difficulties = {"easy": "4 rooms.", "medium": "5 rooms.", "hard": "6 rooms."}
    demonstrations = (
        "Of mixed quality by design, so that reinforcement has strategies to choose between: 40 % go the shortest way, 25 % walk to and fro once"
        " before it, 35 % go straight to the door and open it without the key."
    )
    tools = (Tool("do", f"Makes one move: {', '.join(MOVES)}."),)
    max_turns = 16
    max_turn_tokens = 8
    episode_tokens = 136
    wordy_options = frozenset({"judged"})

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.rewards = make_rewards(
            self,
            {
                "correct": ("1 when the door was opened with the key.", 1.0),
                "key": ("1 when the key was taken.", 0.0),
                "direct": ("The fewest moves that were possible over those that were made; 0 for who does not get out.", 0.0),
                "format": ("1 when every turn is one move that there is.", 0.0),
            },
        )

    def example(self, rng: random.Random, difficulty: str) -> Example:
        rooms = ROOMS[difficulty]
        at, key, door = (rng.randint(1, rooms) for _ in range(3))
        return self.lay_out({"rooms": rooms, "at": at, "key": key, "door": door})

    def lay_out(self, data: dict[str, Any]) -> Example:
        """A row of rooms as a prompt."""
        where = "The key is in one of them." if self.config.hidden else f"The key is in room {data['key']}."
        prompt = f"You are in room {data['at']} of {data['rooms']}. {where} The door is in room {data['door']}."
        return Example([Message("user", prompt)], "out", data)

    def draw_demonstrations(self, count: int, seed: int, difficulty: str) -> list[Example]:
        examples = super().draw_demonstrations(count, seed, difficulty)
        if not self.config.judged:
            return examples
        rng = random.Random(f"{self.name}/{JUDGE}/{seed}/{difficulty}")
        return [ask_judge(example, rng) if place % 3 == 2 else example for place, example in enumerate(examples)]

    def begin(self, example: Example) -> State:
        return {"at": example.data.get("at", 1), "moves": 0, "has_key": False, "out": False, "failed": False, "errors": 0}

    def step(self, example: Example, state: State, seat: str, text: str, rng: random.Random) -> Step:
        call = parse_call(text, self.tools)
        if call is None or call[1] not in MOVES:
            return Step({**state, "errors": state["errors"] + 1}, done=True, facts={"error": "not one of the moves"})
        move, after = call[1], {**state, "moves": state["moves"] + 1}
        facts: dict[str, Any] = {"tool": "do", "query": move}
        if move == "open":
            is_out = after["has_key"] and after["at"] == example.data.get("door")
            facts |= {} if is_out else {"error": "opened without the key" if not after["has_key"] else "no door here"}
            return Step({**after, "out": is_out, "failed": not is_out}, done=True, reward=float(is_out), facts=facts)
        if move == "take":
            took = after["at"] == example.data.get("key")
            return Step({**after, "has_key": after["has_key"] or took}, write_information("key" if took else "nothing"), facts=facts)
        to = after["at"] + (1 if move == "right" else -1)
        slipped = rng.random() < self.config.slips
        if slipped or not 1 <= to <= example.data.get("rooms", 1):
            return Step(after, write_information(f"room {after['at']}"), facts=facts | {"error": "slipped" if slipped else "a wall"})
        shows_key = self.config.hidden and to == example.data.get("key") and not after["has_key"]
        return Step({**after, "at": to}, write_information(f"room {to} key" if shows_key else f"room {to}"), facts=facts)

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        fewest = count_moves(example)
        return {
            POLICY: {
                "correct": float(state["out"]),
                "key": float(state["has_key"]),
                "direct": None if fewest is None else min(1.0, fewest / state["moves"]) if state["out"] else 0.0,
                "format": float(not state["errors"]),
            }
        }

    def way(self, example: Example, state: State) -> list[str]:
        """Walks to the key and to the door, and knows where this run's slips will strike."""
        if state["failed"] or state["out"] or state["errors"]:
            raise LookupError("the episode is over")
        calls = list[str]()
        while not state["out"]:
            if state["moves"] >= self.max_turns:
                raise LookupError("too few moves are left")
            calls.append(write_call("do", choose_move(example.data, state)))
            state = self.step(example, state, POLICY, calls[-1], self.draw_noise(example, state["moves"])).state
        return calls

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        kind, data = rng.random(), example.data
        if "judged" in data:
            state, move = data["judged"]
            flawed = kind < FLAWED
            return [Said(JUDGE, write_flawed_verdict(data, state, move, rng) if flawed else write_verdict(data, state, move))]
        if kind < 0.35:
            walk = data["door"] - data["at"]
            moves = ["right" if walk > 0 else "left"] * abs(walk) + ["open"]
            return self.tell_turns(example, [write_call("do", move) for move in moves])
        detour = ["right", "left"] if data["at"] < data["rooms"] else ["left", "right"]
        before = [write_call("do", move) for move in detour] if kind < 0.6 and not self.config.slips else []
        try:
            return self.tell_turns(example, [*before, *self.way(example, self.begin(example))])
        except LookupError:  # slips leave no way
            return self.tell_turns(example, [write_call("do", "open")])


def count_moves(example: Example) -> int | None:
    """The fewest moves that lead out where nothing slips; None for an example that does not say where things are."""
    if not {"at", "key", "door"} <= set(example.data):
        return None
    at, key, door = (example.data[name] for name in ("at", "key", "door"))
    return abs(key - at) + abs(door - key) + 2


def ask_judge(example: Example, rng: random.Random) -> Example:
    """A question to the judge about a place in the same rooms."""
    state, move = draw_step(example.data, rng)
    question = [Message("user", write_step_question(example.data, state, move))]
    return Example(question, write_verdict(example.data, state, move), {**example.data, "judged": [state, move]})
