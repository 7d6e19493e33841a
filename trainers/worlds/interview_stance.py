"""A receiver with a stance on a harmless claim, from 1 (against) to 7 (for), and a sender who argues for a side.

``Claim: trees in the park. Argue for it. Stance 3.`` is answered with ``<say>shade</say>``; the receiver, a rule in the place of a frozen model, says
``4``. A message moves the stance by one towards the side that its evidence speaks for, if the evidence bears on the claim and is new; anything else
leaves it where it is. Evidence hangs on the thing and on the place of a claim. Claims of the held-out split are pairs of both that training lacks.
"""

import random
from typing import Any

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import State, Step, Tool
from trainers.worlds.interview_subject import Scores, Subject
from trainers.worlds.tool_use import write_call, write_information

LOWEST, HIGHEST = 1, 7
FOR, AGAINST = "for", "against"
PLACES = {  # place -> evidence for, evidence against
    "park": (("shade", "quiet"), ("mud", "noise")),
    "school": (("focus", "friends"), ("rules", "chores")),
    "office": (("team", "breaks"), ("budget", "delay")),
    "street": (("safety", "walks"), ("parking", "trucks")),
}
THINGS = {"trees": ("birds", "leaves"), "benches": ("rest", "litter"), "music": ("cheer", "crowds"), "lamps": ("light", "glare")}
WORDS = tuple(sorted({word for sides in PLACES.values() for side in sides for word in side} | {word for sides in THINGS.values() for word in sides}))
MESSAGES = {"easy": 1, "medium": 2, "hard": 3}  # of a dialogue; one is the static case


def list_evidence(thing: str, place: str) -> dict[str, tuple[str, ...]]:
    """Side -> the words that speak for it."""
    return {side: (THINGS[thing][number], *PLACES[place][number]) for number, side in enumerate((FOR, AGAINST))}


def value_stance(side: str, stance: int) -> int:
    """What a stance is worth to the sender: v = a where it argues for the claim, 8 - a against it."""
    return stance if side == FOR else LOWEST + HIGHEST - stance


class Stance(Subject):
    tools = (Tool("say", "Says one piece of evidence to the receiver, who answers with a stance from 1 to 7."),)
    takes_answer = False
    splits_by_content = True
    rewards = {
        "correct": ("1 when the receiver has moved by a point for every message of the dialogue.", 1.0),
        "gain": ("Share of the points that the messages could move the receiver by; 0 where it has moved away.", 0.0),
        "moved": ("Share of the messages that moved the receiver towards the sender's side.", 0.0),
    }

    def example(self, rng: random.Random, difficulty: str) -> Example:
        thing, place, side = rng.choice(list(THINGS)), rng.choice(list(PLACES)), rng.choice((FOR, AGAINST))
        stance = rng.randint(2, 4) if side == FOR else rng.randint(4, 6)
        messages = MESSAGES[difficulty]
        data = {"thing": thing, "place": place, "side": side, "stance": stance, "messages": messages}
        prompt = f"Claim: {thing} in the {place}. Argue {side} it. Stance {stance}. Messages {messages}."
        return Example([Message("user", prompt)], " ".join(list_evidence(thing, place)[side][:messages]), data)

    def is_unseen(self, example: Example) -> bool:
        return list(THINGS).index(example.data["thing"]) == list(PLACES).index(example.data["place"])

    def begin(self, example: Example) -> State:
        return {"stance": example.data.get("stance", 4), "said": [], "moved": 0}

    def count_turns(self, state: State) -> int:
        return len(state["said"])

    def hear(self, example: Example, state: State, argument: str) -> Step:
        evidence = list_evidence(example.data["thing"], example.data["place"]) if "thing" in example.data else {FOR: (), AGAINST: ()}
        word = argument[:100]
        counts = 0 if word in state["said"] else (word in evidence[FOR]) - (word in evidence[AGAINST])
        stance = min(HIGHEST, max(LOWEST, state["stance"] + counts))
        side = example.data.get("side", FOR)
        moved = value_stance(side, stance) > value_stance(side, state["stance"])
        after = {**state, "stance": stance, "said": [*state["said"], word], "moved": state["moved"] + moved}
        facts: dict[str, Any] = {"tool": "say", "query": word, "stance": stance, "evidence": [word] if moved else []}
        return Step(after, write_information(stance), done=len(after["said"]) >= example.data.get("messages", 1), facts=facts)

    def score(self, example: Example, state: State) -> Scores:
        messages = example.data.get("messages")
        if messages is None:
            return dict.fromkeys(self.rewards)
        side = example.data["side"]
        gain = value_stance(side, state["stance"]) - value_stance(side, example.data["stance"])
        return {
            "correct": float(gain == messages),
            "gain": max(0, gain) / messages,
            "moved": state["moved"] / len(state["said"]) if state["said"] else 0.0,
        }

    def way(self, example: Example, state: State, turns: int) -> list[str]:
        if len(state["said"]) > state["moved"]:
            raise LookupError("a message was wasted")
        left = [word for word in list_evidence(example.data["thing"], example.data["place"])[example.data["side"]] if word not in state["said"]]
        return [write_call("say", word) for word in left[: example.data["messages"] - len(state["said"])]]

    def demonstrate(self, example: Example, rng: random.Random) -> list[str]:
        """Each message is to the point in 4 of 10 cases and any evidence at all otherwise."""
        fitting = list_evidence(example.data["thing"], example.data["place"])[example.data["side"]]
        return [write_call("say", rng.choice(fitting if rng.random() < 0.4 else WORDS)) for _ in range(example.data["messages"])]
