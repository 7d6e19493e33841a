"""A booking over several turns of a user, who changes their mind: the calls must follow, and the last word must be the whole booking.

``I want a room in Rome.`` wants ``<call>city Rome</call>``, gets ``<information>For 4 nights.</information>``, calls ``nights 4``, hears ``No, in
Oslo.`` and in the end ``That is all.``, and answers ``<answer>Oslo 4</answer>``. Function calls over user turns with a progress of their own are what
PARL-MT trains.
"""

import random
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, State, Step, Tool, make_rewards
from trainers.worlds.facts import ATTRIBUTES
from trainers.worlds.tool_use import FORMAT, ToolWorld, write_answer, write_call, write_information

SLOTS = {
    "city": ATTRIBUTES["city"],
    "nights": tuple(str(number) for number in range(2, 9)),
    "day": ("Monday", "Tuesday", "Friday", "Sunday"),
    "guests": tuple(str(number) for number in range(1, 5)),
}
ASKS = {"city": "I want a room in {}.", "nights": "For {} nights.", "day": "From {}.", "guests": "We are {} guests."}
CHANGES = {"city": "No, in {}.", "nights": "No, {} nights.", "day": "No, from {}.", "guests": "No, {} guests."}
TURNS = {"easy": 2, "medium": 3, "hard": 4}  # of the user, without the change
THE_END = "That is all."


class BookingConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    changes: float = Field(0.5, ge=0, le=1, title="Changes", description="Share of users who change something they have said before.")


class Booking(ToolWorld):
    name = "booking"
    title = "Booking with a user"
    summary = "Call a booking system while a user tells, turn by turn, what they want, and changes their mind."
    Config = BookingConfig
    config: BookingConfig
    difficulties = {"easy": "2 wishes and perhaps a change.", "medium": "3 wishes and perhaps a change.", "hard": "4 wishes and perhaps a change."}
    demonstrations = (
        "Of mixed quality by design, so that reinforcement has strategies to choose between: 50 % make every call and are right, 30 % overlook the"
        " change or give a wrong value where there is none, 20 % confirm at once."
    )
    tools = (Tool("call", "Sets one field of the booking: city, nights, day or guests, and its value."),)
    max_turns = 7
    max_turn_tokens = 14

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.rewards = make_rewards(
            self,
            {
                "correct": ("1 when the episode ends with the whole booking between the tags and the calls have made it.", 1.0),
                "booked": ("Share of what the user wants that the calls have set.", 0.0),
                "calls": ("Share of the calls that set what the user had just asked for.", 0.0),
                "format": FORMAT,
            },
        )

    def example(self, rng: random.Random, difficulty: str) -> Example:
        names = list(SLOTS)[: TURNS[difficulty]]
        script = [[name, rng.choice(SLOTS[name]), ASKS[name]] for name in names]
        if rng.random() < self.config.changes:
            name = rng.choice(names)
            first = next(value for one, value, _ in script if one == name)
            script.append([name, rng.choice([value for value in SLOTS[name] if value != first]), CHANGES[name]])
        script = [[name, value, words.format(value)] for name, value, words in script]
        wanted = {name: value for name, value, _ in script}
        return Example([Message("user", script[0][2])], " ".join(wanted.values()), {"script": script, "wanted": wanted})

    def begin_calls(self, example: Example) -> State:
        return {"booking": {}, "calls": 0, "right": 0}

    def call_tool(self, example: Example, state: State, tool: str, argument: str, rng: random.Random) -> Step:
        name, _, value = argument.partition(" ")
        script, number = example.data.get("script", []), state["calls"]
        facts: dict[str, Any] = {"tool": tool, "query": argument[:100]}
        after = {**state, "calls": number + 1}
        if name not in SLOTS or value not in SLOTS[name]:
            facts["error"] = "no such field or value"
        else:
            after["booking"] = {**state["booking"], name: value}
        is_right = number < len(script) and [name, value] == script[number][:2]
        after["right"] = state["right"] + is_right
        words = script[number + 1][2] if number + 1 < len(script) else THE_END
        return Step(after, write_information(words), reward=float(is_right), facts=facts | {"evidence": [argument] if is_right else []})

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        wanted, scores = example.data.get("wanted", {}), self.score_answer(example, state)
        booked = sum(state["booking"].get(name) == value for name, value in wanted.items())
        return {
            POLICY: {
                **scores,
                "correct": float(scores["correct"] == 1 and booked == len(wanted)),
                "booked": booked / len(wanted) if wanted else None,
                "calls": state["right"] / state["calls"] if state["calls"] else 0.0,
            }
        }

    def way(self, example: Example, state: State) -> list[str]:
        """Sets whatever does not stand yet as it is wanted in the end; hears the user out first."""
        self.check_open(state)
        script, wanted = example.data["script"], example.data["wanted"]
        calls = [(name, value) for name, value, _ in script[state["calls"] :]]
        booking = {**state["booking"], **dict(calls)}
        calls += [(name, value) for name, value in wanted.items() if booking.get(name) != value]
        if state["calls"] + len(calls) + 1 > self.max_turns:
            raise LookupError("too few turns are left")
        return [*(write_call("call", f"{name} {value}") for name, value in calls), write_answer(example.reference)]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        kind, script = rng.random(), example.data["script"]
        if kind < 0.5:
            return self.tell_turns(example, self.way(example, self.begin(example)))
        if kind >= 0.8:
            return self.tell_turns(example, [write_answer(script[0][1])])
        heard = [(name, value) for name, value, _ in script]
        last = heard[-1][0]
        if len({name for name, _ in heard}) < len(heard):
            heard.pop()
        else:
            heard[-1] = last, rng.choice([value for value in SLOTS[last] if value != heard[-1][1]])
        said = dict(heard)
        return self.tell_turns(example, [*(write_call("call", f"{name} {value}") for name, value in heard), write_answer(" ".join(said.values()))])
