"""A booking over several turns of a user, who changes their mind: the calls must follow, and the last word must be the whole booking.

``I want a room in Rome.`` wants ``<call>city Rome</call>``, gets ``<information>For 4 nights.</information>``, calls ``nights 4``, hears ``No, in
Oslo.`` and in the end ``That is all.``, and answers ``<answer>Oslo 4</answer>``. Function calls over user turns with a progress of their own are what
PARL-MT trains: with the option ``progress`` an example is one turn of a conversation (``booking_progress.py``).
"""

import random
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, State, Step, Tool, make_rewards
from trainers.worlds.booking_progress import (
    book_so_far,
    build_turn_example,
    score_progress_turn,
    take_progress_turn,
    tell_booking,
    write_careless_turn,
    write_progress_turn,
)
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
    progress: bool = Field(
        False, title="Progress for history", description="Each turn is an example of its own, with what is done so far in the prompt."
    )


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
    wordy_options = frozenset({"progress"})

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        if self.config.progress:  # of this object alone
            self.max_turn_tokens = 40  # type: ignore[misc]
            columns = {
                "correct": ("1 when the turn calls what the user asks for, or answers with the whole booking.", 1.0),
                "progress": ("1 when the progress tells what is booked after the turn.", 0.0),
                "format": ("1 when the turn is a progress and then a call, or the answer where the user has finished.", 0.0),
            }
            self.rewards = make_rewards(self, columns)
            return
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
        conversation = Example([Message("user", script[0][2])], " ".join(wanted.values()), {"script": script, "wanted": wanted})
        if not self.config.progress:
            return conversation
        turn = rng.randint(0, len(script))
        return build_turn_example(conversation, turn, tell_user_turn(conversation, turn), tell_booking(book_so_far(conversation, turn)))

    @property
    def tags(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*super().tags, *(("progress",) if self.config.progress else ()))

    def step(self, example: Example, state: State, seat: str, text: str, rng: random.Random) -> Step:
        return take_progress_turn(example, state, text) if self.config.progress else super().step(example, state, seat, text, rng)

    def begin_calls(self, example: Example) -> State:
        if self.config.progress:
            return {"said": None, "progress": None}
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
        words = tell_user_turn(example, number + 1)
        return Step(after, write_information(words), reward=float(is_right), facts=facts | {"evidence": [argument] if is_right else []})

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        if self.config.progress:
            return {POLICY: {**score_progress_turn(example, state), "format": float(state["said"] is not None)}}
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
        if self.config.progress:
            return [write_progress_turn(example, book_so_far(example, example.data["turn"] + 1), example.reference)]
        script, wanted = example.data["script"], example.data["wanted"]
        calls = [(name, value) for name, value, _ in script[state["calls"] :]]
        booking = {**state["booking"], **dict(calls)}
        calls += [(name, value) for name, value in wanted.items() if booking.get(name) != value]
        if state["calls"] + len(calls) + 1 > self.max_turns:
            raise LookupError("too few turns are left")
        return [*(write_call("call", f"{name} {value}") for name, value in calls), write_answer(example.reference)]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        kind, script = rng.random(), example.data["script"]
        if self.config.progress:
            values = SLOTS[script[-1 if example.data["turn"] == len(script) else example.data["turn"]][0]]
            return self.tell_turns(example, self.way(example, self.begin(example)) if kind < 0.6 else [write_careless_turn(example, values, rng)])
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


def tell_user_turn(example: Example, turn: int) -> str:
    """What the user says in turn ``turn`` (from 0)."""
    script = example.data.get("script", [])
    words: str = script[turn][2] if turn < len(script) else THE_END
    return words
