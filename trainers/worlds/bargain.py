"""Two share goods that each values differently and privately: what one gives up may be worth more to the other, so that both can gain.

``4 apples, 4 figs. Worth to you: apples 2, figs 2.`` is opened with ``<offer>4 0</offer>`` (what the seat wants of each), hears
``<information>they want 4 0</information>``, and closes the deal with ``<offer>0 4</offer>``: an offer that leaves the other what it has asked for is
one. Who values what more is private; it shows only in what the other asks for. One policy in both seats is OMAR's. Played as a text, the second seat
is a rule with worths of its own; with the option ``seat`` every offer is handed to it, for methods that play both.
"""

import random
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, Seat, State, Step, Tool, World, make_rewards, parse_call
from trainers.worlds.tool_use import write_call, write_information

PARTNER = "partner"
GOODS = ("apples", "pears", "plums", "figs", "nuts", "eggs")
WORTHS = {"easy": (1, 2, 3), "medium": (1, 2, 3, 4), "hard": (1, 2, 3, 4, 5, 6)}  # of the first good; both together are worth one more than the most
COUNTS = {"easy": (2, 4), "medium": (2, 4), "hard": (3, 6)}  # of each good


class BargainConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    partner: Literal["rule", "seat"] = Field(
        "rule", title="Partner", description="A rule, or a seat of its own, for methods that play both; other methods can only play the rule."
    )
    reserve: float = Field(
        0.4, ge=0.1, le=0.5, title="Reserve", description="Share of all that the goods are worth to it below which the rule refuses."
    )
    opened: float = Field(0.5, ge=0, le=1, title="Partner opens", description="Share of prompts in which the partner has made the first offer.")
    scale: int = Field(1, ge=1, le=100, title="Partner's scale", description="Factor of the partner's own score: what training two roles must bear.")


class Bargain(World):
    name = "bargain"
    title = "Bargain over two goods"
    summary = "Share two goods with a partner whose worths are private: find the deal that is worth the most to both."
    Config = BargainConfig
    config: BargainConfig
    seats = (Seat(POLICY, "The policy that is trained."), Seat(PARTNER, "The other side: a rule, or the same policy with worths of its own."))
    difficulties = {"easy": "Worths from 1 to 3.", "medium": "Worths from 1 to 4.", "hard": "Worths from 1 to 6, and more of each good."}
    demonstrations = (
        "Of mixed quality by design, so that reinforcement has strategies to choose between: 35 % ask for the good they value most and give in to"
        " what the partner asks for, 35 % split both goods in halves, 30 % want everything until no turn is left."
    )
    tools = (Tool("offer", "Says how many of each good the seat wants: two numbers. The other gets the rest."),)
    max_turns = 4
    max_turn_tokens = 8
    episode_tokens = 48

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.rewards = make_rewards(
            self,
            {
                "correct": ("1 when there is a deal, and none is worth more to both together.", 1.0),
                "own": ("What the deal is worth to the seat over what the best deal for both is; 1 at most, 0 without a deal.", 0.5),
                "joint": ("What the deal is worth to both over what the best one is; 0 without a deal.", 0.0),
                "format": ("1 when every turn is one offer of what there is.", 0.0),
            },
        )

    def example(self, rng: random.Random, difficulty: str) -> Example:
        worths, total = WORTHS[difficulty], len(WORTHS[difficulty]) + 1
        while True:
            first, second = rng.sample(worths, 2)
            data: dict[str, Any] = {"goods": rng.sample(GOODS, 2), "count": rng.randint(*COUNTS[difficulty]), "opening": None}
            data["worth"] = {POLICY: [first, total - first], PARTNER: [second, total - second]}
            if value_goods(data, PARTNER, find_best(data)[PARTNER]) >= self.config.reserve * value_goods(data, PARTNER, [data["count"]] * 2):
                break
        if rng.random() < self.config.opened:
            data["opening"] = find_wanted(data, PARTNER)
        best = find_best(data)[POLICY]
        return Example(write_view(data, POLICY, data["opening"]), f"{best[0]} {best[1]}", data)

    def begin(self, example: Example) -> State:
        return {"asked": {POLICY: None, PARTNER: example.data.get("opening")}, "to": POLICY, "turns": 0, "deal": None, "over": False, "errors": 0}

    def view(self, example: Example, state: State, seat: str) -> list[Message]:
        """What there is, the seat's own worths and what the other has asked for."""
        if "worth" not in example.data:
            return example.prompt
        return write_view(example.data, seat, state["asked"][name_other(seat)])

    def step(self, example: Example, state: State, seat: str, text: str, rng: random.Random) -> Step:
        call, data, other = parse_call(text, self.tools), example.data, name_other(seat)
        offer = None if call is None or "worth" not in data else parse_offer(call[1], data["count"])
        if offer is None or seat != state["to"] or state["over"]:
            return Step({**state, "errors": state["errors"] + 1, "over": True}, done=True, facts={"error": "not one offer of what there is"})
        rest = [data["count"] - one for one in offer]
        after = {**state, "asked": {**state["asked"], seat: offer}, "turns": state["turns"] + 1}
        facts: dict[str, Any] = {"tool": "offer", "query": f"{offer[0]} {offer[1]}", "worth": {one: data["worth"][one] for one in (seat, other)}}
        asked = state["asked"][other]
        if (asked is not None and asked[0] <= rest[0] and asked[1] <= rest[1]) or (self.config.partner == "rule" and self.accepts(data, other, rest)):
            return Step({**after, "deal": {seat: offer, other: rest}, "over": True}, done=True, facts=facts | {"evidence": ["deal"]})
        if self.config.partner == "rule":
            offer = find_wanted(data, other)
            after["asked"] = {**after["asked"], other: offer}
        else:
            after["to"] = other
        if after["turns"] >= (self.max_turns if self.config.partner == "rule" else 2 * self.max_turns):
            return Step({**after, "over": True}, done=True, facts=facts | {"error": "no deal, and no turn is left"})
        return Step(after, write_information(f"they want {offer[0]} {offer[1]}"), "" if after["to"] == seat else other, facts=facts)

    def accepts(self, data: dict[str, Any], seat: str, goods: list[int]) -> bool:
        """Whether the rule in this seat takes them."""
        return value_goods(data, seat, goods) >= self.config.reserve * value_goods(data, seat, [data["count"]] * 2)

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        data, deal, form = example.data, state["deal"], float(not state["errors"])
        if "worth" not in data:
            return {seat.name: {"correct": None, "own": None, "joint": None, "format": form} for seat in self.seats}
        best = find_best(data)
        most = sum(value_goods(data, seat, goods) for seat, goods in best.items())
        joint = sum(value_goods(data, seat, goods) for seat, goods in deal.items()) / most if deal else 0.0
        scores: dict[str, dict[str, float | None]] = {}
        for seat, scale in ((POLICY, 1), (PARTNER, self.config.scale)):
            own = min(1.0, value_goods(data, seat, deal[seat]) / value_goods(data, seat, best[seat])) if deal else 0.0
            scores[seat] = {"correct": float(joint == 1), "own": scale * own, "joint": joint, "format": form}
        return scores

    def way(self, example: Example, state: State) -> list[str]:
        """The best deal for both, which the rule takes at once."""
        if state["over"] or state["to"] != POLICY:
            raise LookupError("the bargain is over, or it is the partner's turn")
        return [write_call("offer", example.reference)]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        data, kind, offers = example.data, rng.random(), list[list[int]]()
        state = self.begin(example)
        while not state["over"] and state["to"] == POLICY:
            wanted, asked = find_wanted(data, POLICY), state["asked"][PARTNER]
            if kind < 0.35:
                gives_in = asked is not None and (asked[0] == 0 or asked[1] == 0) and (offers or self.should_give_in(data, asked))
                offer = [data["count"] - one for one in asked] if gives_in else wanted
            else:
                offer = [data["count"] // 2] * 2 if kind < 0.7 else [data["count"]] * 2
            offers.append(offer)
            state = self.step(example, state, POLICY, write_offer(offer), rng).state
        return self.tell_turns(example, [write_offer(offer) for offer in offers])

    def should_give_in(self, data: dict[str, Any], asked: list[int]) -> bool:
        """Whether what is asked for first is not what the policy values most; of the same, only strong wishes are held on to."""
        mine = data["worth"][POLICY]
        favourite = asked[0] if mine[0] >= mine[1] else asked[1]
        return favourite == 0 or abs(mine[0] - mine[1]) <= 1


def name_other(seat: str) -> str:
    return PARTNER if seat == POLICY else POLICY


def value_goods(data: dict[str, Any], seat: str, goods: list[int]) -> int:
    return sum(worth * count for worth, count in zip(data["worth"][seat], goods, strict=True))


def find_best(data: dict[str, Any]) -> dict[str, list[int]]:
    """Each good to the seat that it is worth more to."""
    mine, theirs = data["worth"][POLICY], data["worth"][PARTNER]
    own = [data["count"] if one > other else 0 for one, other in zip(mine, theirs, strict=True)]
    return {POLICY: own, PARTNER: [data["count"] - one for one in own]}


def find_wanted(data: dict[str, Any], seat: str) -> list[int]:
    """All of what the seat values most; of two of the same worth, the first."""
    first, second = data["worth"][seat]
    return [data["count"], 0] if first >= second else [0, data["count"]]


def parse_offer(text: str, most: int) -> list[int] | None:
    numbers = text.split(" ")
    valid = len(numbers) == 2 and all(len(number) == 1 and number in "0123456789" and int(number) <= most for number in numbers)
    return [int(number) for number in numbers] if valid else None


def write_offer(offer: list[int]) -> str:
    return write_call("offer", f"{offer[0]} {offer[1]}")


def write_view(data: dict[str, Any], seat: str, asked: list[int] | None) -> list[Message]:
    (first, second), (worth, other), count = data["goods"], data["worth"][seat], data["count"]
    said = "" if asked is None else f" They want {asked[0]} {asked[1]}."
    return [Message("user", f"{count} {first}, {count} {second}. Worth to you: {first} {worth}, {second} {other}.{said}")]
