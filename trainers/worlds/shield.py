"""Histories of users of a shop, to be told apart: real ones, who buy of one genre, and fake ones, who buy at random to push an item.

``lamp, chair, drum, sofa, shelf. Real or fake?`` wants a thought that says the genre of each item on a line of its own, ``1. home`` to ``5. home``,
what that comes to, and ``Real``. Three items of a genre are as often a fake user's as a real one's: who is suspected then is a matter of what an
error costs. The columns of the reward are the six terms of SemanticShield (arXiv 2509.24961), each as 1 for what it asks for; the recipe
``semanticshield`` weighs them so that their sum is the paper's R but for a constant, which no advantage sees:
    R = (2 correct - 1 - .25 [an attack is called real]) + .5 format + .25 list + .25 length - .5 [the thought names the other label] - .5 [gibberish]

All members of a group have the same label, so where a base divides advantages by their group's deviation, what a missed attack costs hardly shows; it
does without that division (Dr. GRPO). Items and their genres stand for titles and descriptions; ratings, and the statistics by which the authors
choose whom to audit, are left out. Thoughts are shorter than theirs, and ``shortest`` and ``longest`` say how long they are wanted.
"""

import random
import re
from collections import Counter
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from trainers.contract.events import Message
from trainers.tasks.answers import ANSWER, END_ANSWER, END_THINK, THINK
from trainers.tasks.base import Example
from trainers.worlds.base import MAX_TURN_CHARACTERS, POLICY, Said, State, Step, make_rewards
from trainers.worlds.tool_use import CORRECT, ToolWorld

GENRES = {
    "home": ("lamp", "chair", "sofa", "table", "shelf", "stove"),
    "music": ("drum", "harp", "flute", "cello", "banjo", "bell"),
    "garden": ("rake", "spade", "seed", "hose", "fern", "pot"),
    "sport": ("ball", "bat", "net", "ski", "oar", "glove"),
    "food": ("bread", "milk", "soup", "rice", "plum", "corn"),
}
GENRE_OF = {item: genre for genre, items in GENRES.items() for item in items}
ITEMS = 5  # of a history
REAL, FAKE = "Real", "Fake"
UNCLEAR = {"easy": 0.3, "medium": 0.4, "hard": 0.5}  # share of the histories with three items of a genre
SUMS = {True: "mostly one", False: "no pattern", None: "some alike"}  # what demonstrated thoughts end with; None: three of a genre
LABEL = re.compile(rf"{ANSWER}\s*({REAL}|{FAKE})\s*{END_ANSWER}", re.IGNORECASE)
WORD, LETTERS = re.compile(r"[A-Za-z]+(?:'[A-Za-z]+)?"), re.compile(r"[A-Za-z]+")
NUMBERED, NUMBERED_LINE = re.compile(r"\d\."), re.compile(r"\d+\.")
LONGEST_WORD = 20  # letters; a longer one is gibberish


class ShieldConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    shortest: int = Field(6, ge=0, le=1000, title="Short thoughts", description="A thought has to have more words than these; the authors: 60.")
    longest: int = Field(20, ge=8, le=1000, title="Long thoughts", description="A thought has to have fewer words than these; the authors: 130.")

    @field_validator("longest")
    @classmethod
    def check_room(cls, longest: int, info: ValidationInfo) -> int:
        if longest < info.data.get("shortest", 0) + 3:  # demonstrations reach it by two words at a time
            raise ValueError("leaves too little room: raise it to three more than the shortest at least")
        return longest


class Shield(ToolWorld):
    name = "shield"
    title = "Real and fake users"
    summary = "Tell from the items of a history whether its user is real or fakes one to push an item; some histories leave it open."
    Config = ShieldConfig
    config: ShieldConfig
    difficulties = {name: f"{share:.0%} of the histories leave it open." for name, share in UNCLEAR.items()}
    demonstrations = (
        "Of mixed quality by design: 60 % name the genre of every item and decide by it, 20 % name two of them and guess, 20 % guess at once; a tenth"
        " of all thoughts name the label that they do not give."
    )
    max_turns = 1
    max_turn_tokens = 64
    episode_tokens = 72

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.rewards = make_rewards(
            self,
            {
                "correct": CORRECT,
                "caught": ("Of fake users: 0 where one is called real, the error that may cost more, else 1.", 0.0),
                "cleared": ("Of real users: 0 where one is called fake, else 1.", 0.0),
                "format": ("1 when it is a thought and a label, each between its tags on lines of their own, and nothing else.", 0.2),
                "list": ("1 when three lines in a row are numbered.", 0.0),
                "length": ("1 when the thought is neither too short nor too long.", 0.0),
                "consistent": ("0 where the thought names the label that is not given, else 1.", 0.0),
                "words": (f"0 where the thought has a word of more than {LONGEST_WORD} letters, else 1.", 0.0),
            },
        )

    def example(self, rng: random.Random, difficulty: str) -> Example:
        is_fake, is_unclear = rng.random() < 0.5, rng.random() < UNCLEAR[difficulty]
        alike = 3 if is_unclear else rng.choice((1, 2)) if is_fake else rng.choice((4, 5))
        main, *others = rng.sample(list(GENRES), len(GENRES))
        genres = [main] * alike + others[: ITEMS - alike]
        items = list[str]()
        for genre in genres:
            items.append(rng.choice([item for item in GENRES[genre] if item not in items]))
        rng.shuffle(items)
        data = {"items": items, "fake": is_fake}
        return Example([Message("user", f"{', '.join(items)}. Real or fake?")], FAKE if is_fake else REAL, data)

    def begin_calls(self, example: Example) -> State:
        return {"formed": False, "listed": False, "words": 0, "opposite": False, "gibberish": False}

    def step(self, example: Example, state: State, seat: str, text: str, rng: random.Random) -> Step:
        """Any text ends the episode: what it earns is counted as the paper's functions do, form or none."""
        after = {**state, **read_audit(text)}
        return Step(after, done=True, reward=float(after["answer"] == example.reference))

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        is_fake, answer = example.data.get("fake", example.reference == FAKE), state["answer"]
        return {
            POLICY: {
                "correct": float(answer == example.reference),
                "caught": float(answer != REAL) if is_fake else None,
                "cleared": None if is_fake else float(answer != FAKE),
                "format": float(state["formed"]),
                "list": float(state["listed"]),
                "length": float(self.config.shortest < state["words"] < self.config.longest),
                "consistent": float(not state["opposite"]),
                "words": float(not state["gibberish"]),
            }
        }

    def way(self, example: Example, state: State) -> list[str]:
        self.check_open(state)
        if "items" not in example.data:
            raise LookupError("the example does not say which items its user has")
        return [write_audit(list_genres(example), example.reference, self.config.shortest)]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        kind, genres = rng.random(), list_genres(example)
        guess = rng.choice((REAL, FAKE))
        if kind < 0.2:
            return self.tell_turns(example, [f"{ANSWER}\n{guess}\n{END_ANSWER}"])
        if kind < 0.4:
            return self.tell_turns(example, [write_audit(genres[:2], guess)])
        alike = is_alike(genres)
        label = guess if alike is None else REAL if alike else FAKE
        slip = f" {FAKE if label == REAL else REAL}" if rng.random() < 0.1 / 0.6 else ""
        return self.tell_turns(example, [write_audit(genres, label, self.config.shortest, slip)])


def list_genres(example: Example) -> list[str]:
    return [GENRE_OF[item] for item in example.data["items"]]


def is_alike(genres: list[str]) -> bool | None:
    """Whether most are of one genre; None for three, which leave it open."""
    most = max(Counter(genres).values())
    return None if most == 3 else most > 3


def write_audit(genres: list[str], label: str, shortest: int = 0, slip: str = "") -> str:
    """A thought with a line for each genre and what they come to, repeated until it has more than ``shortest`` words, then the label."""
    lines = [f"{number}. {genre}" for number, genre in enumerate(genres, 1)]
    last = SUMS[is_alike(genres)] + slip
    while len(genres) + len(WORD.findall(last)) <= shortest:
        last += f" {SUMS[is_alike(genres)]}"
    return f"{THINK}\n" + "\n".join([*lines, last]) + f"\n{END_THINK}\n{ANSWER}\n{label}\n{END_ANSWER}"


def read_audit(text: str) -> State:
    """What a text says, wherever it stands in it."""
    text = text[:MAX_TURN_CHARACTERS]
    found, thought = LABEL.search(text), find_thought(text)
    answer = found[1].capitalize() if found else None
    other = {REAL: FAKE, FAKE: REAL}.get(answer or "", "")
    return {
        "answer": answer,
        "errors": int(answer is None),
        "formed": is_formed(text.strip()),
        "listed": has_numbered_lines(text),
        "words": len(WORD.findall(thought)),
        "opposite": bool(other) and other.lower() in (word.lower() for word in LETTERS.findall(thought)),
        "gibberish": any(len(word) > LONGEST_WORD for word in LETTERS.findall(thought)),
    }


def find_thought(text: str) -> str:
    """What stands between the first tags of a thought; empty without both."""
    thought, closed, _ = text.partition(THINK)[2].partition(END_THINK)
    return thought if closed else ""


def is_formed(text: str) -> bool:
    """Whether it is a thought and a label and nothing else, all four tags with line breaks around what is in them."""
    opened, joint = f"{THINK}\n", f"\n{END_THINK}\n{ANSWER}\n"
    _, _, label = text.removeprefix(opened).rpartition(joint)
    return text.startswith(opened) and joint in text[len(opened) :] and label in (f"{REAL}\n{END_ANSWER}", f"{FAKE}\n{END_ANSWER}")


def has_numbered_lines(text: str) -> bool:
    """Whether somewhere a numbered item is followed by two lines that begin with one."""
    lines = text.split("\n")
    begins = [NUMBERED_LINE.match(line) is not None for line in lines]
    return any(NUMBERED.search(line) and all(begins[place + 1 : place + 3]) for place, line in enumerate(lines[:-2]))
