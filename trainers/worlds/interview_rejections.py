"""A doctor's guesses are rejected until one is right: which illness a patient has is found by trying what is left.

``The patient has headache, 7 days.`` is answered with ``<guess>flu</guess>``; the reply is ``no``, and another guess follows, five at most. Every
illness that fits the complaint is as likely as the others, but demonstrations favour the first ones and forget what was rejected: a policy that
imitates them repeats itself. The conversation with rejections is that of ROSA (arXiv 2509.23166); a rule stands in for its user.
"""

import random
from typing import Any

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import State, Step, Tool
from trainers.worlds.interview_subject import Scores, Subject
from trainers.worlds.tool_use import write_call, write_information

FITTING = {  # complaint -> the illnesses that fit it, those first that come to mind first
    "headache": ("flu", "stress", "migraine", "cold", "tumour"),
    "weakness": ("stress", "anaemia", "flu", "diabetes", "lupus"),
    "nausea": ("virus", "ulcer", "migraine", "gastritis", "stress"),
    "rash": ("allergy", "measles", "lupus", "virus", "eczema"),
}
FAVOUR = (8, 4, 2, 1, 1)  # how often demonstrations guess each of them
POSSIBLE = {"easy": 3, "medium": 4, "hard": 5}
GUESSES = 5
REJECTED, ACCEPTED = "no", "yes"


class Rejections(Subject):
    tools = (Tool("guess", f"Names an illness; it is rejected or accepted. {GUESSES} at most."),)
    takes_answer = False
    rewards = {
        "correct": (f"1 when one of the {GUESSES} guesses was right.", 1.0),
        "fresh": ("Share of the guesses that had not been rejected before; 1 without a guess.", 0.0),
    }

    def example(self, rng: random.Random, difficulty: str) -> Example:
        complaint = rng.choice(list(FITTING))
        possible = list(FITTING[complaint][: POSSIBLE[difficulty]])
        illness = rng.choice(possible)
        prompt = f"The patient has {complaint}, {rng.randint(2, 90)} days. {len(possible)} fit."
        return Example([Message("user", prompt)], illness, {"complaint": complaint, "possible": possible})

    def begin(self, example: Example) -> State:
        return {"guesses": [], "repeats": 0, "found": False}

    def count_turns(self, state: State) -> int:
        return len(state["guesses"])

    def hear(self, example: Example, state: State, argument: str) -> Step:
        """``facts``: whether the guess was rejected, and whether it had been rejected before."""
        word = argument[:100]
        found, repeats = word == example.reference, word in state["guesses"]
        after = {**state, "guesses": [*state["guesses"], word], "repeats": state["repeats"] + repeats, "found": found}
        facts: dict[str, Any] = {"tool": "guess", "query": word, "rejected": not found, "repeats": repeats}
        done = found or len(after["guesses"]) >= GUESSES
        return Step(after, write_information(ACCEPTED if found else REJECTED), done=done, facts=facts)

    def score(self, example: Example, state: State) -> Scores:
        if "possible" not in example.data:
            return dict.fromkeys(self.rewards)
        count = len(state["guesses"])
        return {"correct": float(state["found"]), "fresh": 1 - state["repeats"] / count if count else 1.0}

    def way(self, example: Example, state: State, turns: int) -> list[str]:
        if state["found"] or len(state["guesses"]) >= GUESSES:
            raise LookupError("the conversation is over")
        return [write_call("guess", example.reference)]

    def demonstrate(self, example: Example, rng: random.Random) -> list[str]:
        """Guesses that favour what comes to mind first and forget what was rejected, until one is right."""
        possible, said = example.data["possible"], list[str]()
        while len(said) < GUESSES and (not said or said[-1] != example.reference):
            said += rng.choices(possible, FAVOUR[: len(possible)])
        return [write_call("guess", word) for word in said]
