"""A person who tells what is asked and no more: find out the facts that decide, then say what follows from them.

``The patient has headache.`` wants ``<ask>fever</ask>``, gets ``<information>yes</information>``, asks for the other fact that decides and ends
with ``<answer>flu</answer>``. Which two facts decide hangs on the complaint; asking for others is answered and helps nothing. The claim that a
policy can learn to ask is that of proactive interviews (IntentRL, ProMed, Rosa). With the option ``about`` the person has a stance on a claim instead
(``interview_stance.py``), wishes for a report (``interview_intents.py``), an illness to be guessed until it is right (``interview_rejections.py``) or
a need that a graph of questions leads to (``interview_dialogue.py``).
"""

import random
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from trainers.contract.events import Message
from trainers.tasks.base import BUCKETS, BUCKETS_OF, Example, Split, digest_example
from trainers.worlds.base import POLICY, Said, State, Step, Tool, make_rewards
from trainers.worlds.interview_dialogue import Dialogue
from trainers.worlds.interview_intents import Intents
from trainers.worlds.interview_rejections import Rejections
from trainers.worlds.interview_stance import Stance
from trainers.worlds.tool_use import CORRECT, FORMAT, ToolWorld, write_answer, write_call, write_information

SYMPTOMS = ("fever", "cough", "rash", "cramp", "thirst", "chill")
DECISIVE = {"headache": ("fever", "cough"), "weakness": ("thirst", "rash"), "nausea": ("cramp", "chill")}  # complaint -> the two that decide
ILLNESSES = {(True, True): "flu", (True, False): "virus", (False, True): "cold", (False, False): "stress"}
SUBJECTS = {"stance": Stance, "intents": Intents, "rejections": Rejections, "dialogue": Dialogue}
UNSURE, NOT_YET = "unsure", "later"


class InterviewConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    about: Literal["illness", "stance", "intents", "rejections", "dialogue"] = Field(
        "illness",
        title="About",
        description="An illness to name, a stance to move, wishes for a report, an illness guessed until right, or a graph of questions to walk.",
    )
    gate: bool = Field(False, title="Gate", description="The second fact that decides is told only after the first.")
    unsure: float = Field(0.0, ge=0, le=0.5, title="Unsure", description="Share of questions that get no reply, the same for all of a group.")


class Interview(ToolWorld):
    name = "interview"
    title = "Interview with hidden facts"
    summary = "Ask a patient for the symptoms that decide, then name the illness: what is not asked stays hidden."
    Config = InterviewConfig
    config: InterviewConfig
    difficulties = {
        "easy": "One of the two facts that decide is in the prompt.",
        "medium": "Neither is in the prompt.",
        "hard": "Neither is, and a fact beside the point is.",
    }
    demonstrations = (
        "Of mixed quality by design, so that reinforcement has strategies to choose between: 50 % ask what decides and are right, 30 % ask for"
        " something beside the point and guess, 20 % guess at once."
    )
    tools: ClassVar[tuple[Tool, ...]] = (Tool("ask", f"Asks for one symptom: {', '.join(SYMPTOMS)}."),)
    max_turns = 6
    max_turn_tokens = 10
    episode_tokens = 64
    wordy_options = frozenset({"about"})

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.subject = None if self.config.about == "illness" else SUBJECTS[self.config.about]()
        if self.subject is not None:  # of this object alone
            self.tools = self.subject.tools  # type: ignore[assignment, misc]
            self.takes_answer, self.max_turn_tokens = self.subject.takes_answer, self.subject.max_turn_tokens  # type: ignore[misc]
            self.rewards = make_rewards(self, {**self.subject.rewards, "format": FORMAT})
            return
        self.rewards = make_rewards(
            self,
            {
                "correct": CORRECT,
                "decisive": ("Share of the facts that decide that the policy knew when it answered.", 0.0),
                "thrift": ("Share of the questions that brought out a fact that decides; 1 where none had to be asked.", 0.0),
                "format": FORMAT,
            },
        )

    def examples(self, split: Split, count: int, seed: int, difficulty: str) -> list[Example]:
        """A subject may keep some examples for the held-out split by what they are about."""
        if self.subject is None or not self.subject.splits_by_content:
            return super().examples(split, count, seed, difficulty)
        drawn = super().examples(split, 0, seed, difficulty)
        rng = random.Random(f"{self.name}/{self.config.about}/{difficulty}/{split}/{0 if split == 'heldout' else seed}")
        while len(drawn) < count:
            example = self.example(rng, difficulty)
            in_pairs = digest_example(example)[0] % BUCKETS in BUCKETS_OF["pairs"]
            if self.subject.is_unseen(example) == (split == "heldout") and (split == "heldout" or in_pairs == (split == "pairs")):
                drawn.append(example)
        return drawn

    def example(self, rng: random.Random, difficulty: str) -> Example:
        if self.subject is not None:
            return self.subject.example(rng, difficulty)
        complaint = rng.choice(list(DECISIVE))
        facts = {symptom: rng.random() < 0.5 for symptom in SYMPTOMS}
        decisive = DECISIVE[complaint]
        told = [rng.choice(decisive)] if difficulty == "easy" else []
        if difficulty == "hard":
            told = [rng.choice([symptom for symptom in SYMPTOMS if symptom not in decisive])]
        said = "".join(f" {symptom}: {'yes' if facts[symptom] else 'no'}." for symptom in told)
        illness = ILLNESSES[facts[decisive[0]], facts[decisive[1]]]
        return Example([Message("user", f"The patient has {complaint}.{said}")], illness, {"complaint": complaint, "facts": facts, "told": told})

    def begin_calls(self, example: Example) -> State:
        if self.subject is not None:
            return self.subject.begin(example)
        return {"asked": 0, "useful": 0, "known": list(example.data.get("told", []))}

    def call_tool(self, example: Example, state: State, tool: str, argument: str, rng: random.Random) -> Step:
        if self.subject is not None:
            return self.subject.hear(example, state, argument)
        facts, decisive = example.data.get("facts", {}), find_decisive(example)
        after = {**state, "asked": state["asked"] + 1}
        told: dict[str, Any] = {"tool": tool, "query": argument[:100]}
        if argument not in facts:
            return Step(after, write_information(UNSURE), facts=told | {"error": "no such symptom"})
        if rng.random() < self.config.unsure:
            return Step(after, write_information(UNSURE), facts=told | {"junk": True})
        if self.config.gate and argument == decisive[-1] and decisive[0] not in state["known"]:
            return Step(after, write_information(NOT_YET), facts=told | {"error": "asked too early"})
        fresh = argument in decisive and argument not in state["known"]
        after |= {"useful": state["useful"] + fresh, "known": [*state["known"], *([] if argument in state["known"] else [argument])]}
        return Step(after, write_information("yes" if facts[argument] else "no"), facts=told | {"evidence": [argument] if fresh else []})

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        if self.subject is not None:
            is_whole = not state["errors"] and (state["answer"] is not None) == self.takes_answer
            return {POLICY: {**self.subject.score(example, state), "format": float(is_whole)}}
        decisive, asked = find_decisive(example), state["asked"]
        knew = sum(symptom in state["known"] for symptom in decisive)
        return {
            POLICY: {
                **self.score_answer(example, state),
                "decisive": knew / len(decisive) if decisive else None,
                "thrift": state["useful"] / asked if asked else float(knew == len(decisive)),
            }
        }

    def way(self, example: Example, state: State) -> list[str]:
        """Asks for what decides, in the order of the gate, again where this run's noise leaves it without a reply."""
        self.check_open(state)
        if self.subject is not None:
            return self.subject.way(example, state, self.max_turns - self.subject.count_turns(state))
        calls = list[str]()
        while missing := [symptom for symptom in find_decisive(example) if symptom not in state["known"]]:
            if state["asked"] + 1 >= self.max_turns:
                raise LookupError("too few turns are left")
            calls.append(write_call("ask", missing[0]))
            state = self.step(example, state, POLICY, calls[-1], self.draw_noise(example, state["asked"])).state
        return [*calls, write_answer(example.reference)]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        if self.subject is not None:
            return self.tell_turns(example, self.subject.demonstrate(example, rng))
        kind, guess = rng.random(), write_answer(rng.choice(list(ILLNESSES.values())))
        if kind >= 0.5:
            beside = [symptom for symptom in SYMPTOMS if symptom not in find_decisive(example)]
            return self.tell_turns(example, [*([write_call("ask", rng.choice(beside))] if kind < 0.8 else []), guess])
        try:
            return self.tell_turns(example, self.way(example, self.begin(example)))
        except LookupError:  # the person is unsure too often
            return self.tell_turns(example, [guess])


def find_decisive(example: Example) -> tuple[str, ...]:
    return DECISIVE.get(example.data.get("complaint", ""), ())
