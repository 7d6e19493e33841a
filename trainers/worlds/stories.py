"""Stories told sentence by sentence to a reader who asks how something could be, hears no forbidden word, and likes what the genre does not say.

``Tell a merry story. Mia is at the mill. Leo is at the cave. Leo has the lamp. In the end Mia has the lamp. Never say goes.`` wants
``<step>Mia sings</step>``, gets ``<information>and?</information>``, goes on with ``<step>Mia walks to the cave</step>`` and ends the episode with
``<step>Leo gives the lamp to Mia</step>``. The reader is a rule in the place of people: what could happen is a grammar's, what pleases is a list of
words. Search over plot steps is COS(M+O)S's, forbidden words are what CooT watches for, rubrics from preferences are those of query-specific rubrics.
"""

import random
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, State, Step, Tool, World, make_rewards, parse_call
from trainers.worlds.criteria import CRITERIA, GENRES, compare_rubrics, draw_pair, draw_rubric, parse_criterion, prefers_first
from trainers.worlds.facts import PEOPLE
from trainers.worlds.plots import (
    MOODS,
    PLACES,
    THINGS,
    VERBS,
    WORDS,
    Event,
    ImpossibleEventError,
    Plot,
    apply_event,
    find_events,
    is_reached,
    parse_sentence,
    write_sentence,
)
from trainers.worlds.tool_use import write_call, write_information

AND, HOW, NO = "and?", "how?", "no!"
GOALS = {"easy": (2, ["free"]), "medium": (2, ["free", "held"]), "hard": (3, ["carried"])}  # events at least, and how it lies


class StoriesConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    write: Literal["story", "rubric"] = Field("story", title="Writes", description="A story, or the criteria by which to prefer one of two stories.")
    forbidden: float = Field(0.5, ge=0, le=1, title="Forbidden words", description="Share of prompts that forbid a word.")
    criteria: int = Field(1, ge=0, le=CRITERIA, title="Hidden criteria", description="Things that readers of a genre like to find in a story.")
    spare: int = Field(1, ge=0, le=2, title="Spare steps", description="Steps a story may take beyond the shortest that pleases the reader.")


class Stories(World):
    name = "stories"
    title = "Stories for a reader"
    summary = "Tell a story step by step: it has to be possible, to avoid a word, and to please readers who do not say what they like."
    Config = StoriesConfig
    config: StoriesConfig
    difficulties = {
        "easy": "Somebody gets a thing that lies elsewhere.",
        "medium": "The thing lies elsewhere, or somebody else has it.",
        "hard": "The thing is brought to another place.",
    }
    demonstrations = (
        "Of mixed quality by design, so that reinforcement has strategies to choose between: 50 % are possible and avoid the word, 25 % begin with"
        " what cannot happen, 25 % use either word for everything; none knows what the readers like, and half have a mood at random in them."
    )
    tools = (Tool("step", "Tells one sentence: who goes somewhere, takes or gives the thing, or is in a mood."),)
    max_turns = 8
    max_turn_tokens = 14
    episode_tokens = 104

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.rewards = make_rewards(
            self,
            {
                "correct": (
                    "1 when the end is reached, every step could happen and none has the forbidden word. A rubric: it prefers as readers do.",
                    1.0,
                ),
                "reader": (
                    "Share of the hidden criteria of the genre that the story meets. A rubric: how close its weights are to the readers'.",
                    0.5,
                ),
                "possible": ("Share of the steps that could happen and have no forbidden word; of a rubric, those that are criteria.", 0.0),
                "format": ("1 when every turn is one sentence of the grammar.", 0.0),
            },
        )

    def example(self, rng: random.Random, difficulty: str) -> Example:
        genre, (hero, other) = rng.choice(list(GENRES)), rng.sample(PEOPLE[:6], 2)
        if self.config.write == "rubric":
            data: dict[str, Any] = {"genre": genre, "pair": draw_pair(rng, genre, (hero, other)), "steps": CRITERIA}
            return Example([Message("user", f"Write {CRITERIA} criteria for a {genre} story.")], "first", data)
        least, how = GOALS[difficulty]
        while True:
            thing, places = rng.choice(THINGS), rng.sample(PLACES, 3)
            at = {hero: rng.choice(places), other: rng.choice(places)}
            kind = rng.choice(how)
            plot = {"thing": thing, "at": at, "holder": other if kind == "held" else "", "place": "" if kind == "held" else rng.choice(places)}
            goal = ["is at", rng.choice(places)] if kind == "carried" else ["has", hero]
            events = find_events(plot, goal, 4)
            if events is not None and len(events) >= least:
                break
        forbidden = rng.choice(WORDS) if rng.random() < self.config.forbidden else ""
        liked = list(GENRES[genre])[: self.config.criteria]
        data = {"genre": genre, "plot": plot, "goal": goal, "forbidden": forbidden, "liked": liked}
        data["steps"] = len(events) + len(liked) + self.config.spare
        return Example([Message("user", write_prompt(data))], " ".join(goal), data)

    def begin(self, example: Example) -> State:
        return {"plot": example.data.get("plot"), "told": [], "wrong": 0, "reached": False, "over": False, "errors": 0, "rubric": {}}

    def step(self, example: Example, state: State, seat: str, text: str, rng: random.Random) -> Step:
        call = parse_call(text, self.tools)
        if call is None or not (state["plot"] or "pair" in example.data):
            return self.end_early(state, "not one step")
        return self.add_criterion(example, state, call[1]) if "pair" in example.data else self.tell_sentence(example, state, call[1])

    def tell_sentence(self, example: Example, state: State, sentence: str) -> Step:
        plot, data = state["plot"], example.data
        event = parse_sentence(plot, sentence)
        if event is None:
            return self.end_early(state, "no sentence of the grammar")
        facts: dict[str, Any] = {"tool": "step", "query": sentence}
        words, answer = [*state["told"], sentence], AND
        if data["forbidden"] in sentence.split():
            answer, facts["error"] = NO, f"{data['forbidden']} is forbidden"
        else:
            try:
                plot = apply_event(plot, event)
            except ImpossibleEventError as error:
                answer, facts["error"] = HOW, str(error)
        if answer == AND and event[2] in data["liked"]:
            facts["evidence"] = [event[2]]
        after = {**state, "plot": plot, "told": words, "wrong": state["wrong"] + (answer != AND)}
        reached = is_reached(plot, data["goal"])
        done = reached or len(words) >= data["steps"]
        return Step({**after, "reached": reached, "over": done}, "" if done else write_information(answer), "", done, float(answer == AND), facts)

    def add_criterion(self, example: Example, state: State, text: str) -> Step:
        criterion = parse_criterion(text, state["rubric"])
        after = {**state, "told": [*state["told"], text[:50]], "wrong": state["wrong"] + (criterion is None)}
        after["rubric"] = {**state["rubric"], **(criterion or {})}
        facts = {"tool": "step", "query": text[:100], **({"error": "no criterion, or one that is there"} if criterion is None else {})}
        done = len(after["told"]) >= example.data["steps"]
        answer = AND if criterion else HOW
        return Step({**after, "over": done}, "" if done else write_information(answer), "", done, None, facts)

    def end_early(self, state: State, why: str) -> Step:
        return Step({**state, "errors": state["errors"] + 1, "over": True}, done=True, facts={"error": why})

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        data, told = example.data, len(state["told"])
        scores: dict[str, float | None] = {
            "possible": 1 - state["wrong"] / told if told else 0.0,
            "format": float(not state["errors"]),
        }
        if "pair" in data:
            right, liked = prefers_first(state["rubric"], data["pair"]), GENRES[data["genre"]]
            return {POLICY: {"correct": float(right), "reader": compare_rubrics(state["rubric"], liked), **scores}}
        wanted = data.get("liked", [])
        met = sum(any(sentence.endswith(f" {word}") for sentence in state["told"]) for word in wanted)
        return {
            POLICY: {
                "correct": float(state["reached"] and not state["wrong"] and not state["errors"]),
                "reader": met / len(wanted) if wanted else None,
                **scores,
            }
        }

    def way(self, example: Example, state: State) -> list[str]:
        """What readers like first, then the shortest plot."""
        if state["over"] or state["wrong"]:
            raise LookupError("the story is over, or something in it cannot be mended")
        data, left = example.data, example.data["steps"] - len(state["told"])
        if "pair" in data:
            missing = [f"{word} {weight}" for word, weight in GENRES[data["genre"]].items() if word not in state["rubric"]]
            if len(missing) > left or state["rubric"].items() - GENRES[data["genre"]].items():
                raise LookupError("the rubric is another one already")
            return [write_call("step", criterion) for criterion in missing]
        told = [sentence.partition(" ")[2] for sentence in state["told"]]
        moods: list[Event] = [(next(iter(state["plot"]["at"])), "mood", mood) for mood in data["liked"] if mood not in told]
        events = find_events(state["plot"], data["goal"], left - len(moods))
        if events is None:
            raise LookupError("too few steps are left")
        return self.write_steps(example, [*moods, *events])

    def write_steps(self, example: Example, events: list[Event]) -> list[str]:
        return [write_call("step", write_sentence(example.data["plot"], event, example.data["forbidden"])) for event in events]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        data, kind = example.data, rng.random()
        if "pair" in data:
            rubric = GENRES[data["genre"]] if kind < 0.3 else draw_rubric(rng, data["genre"])
            return self.tell_turns(example, [write_call("step", f"{word} {weight}") for word, weight in rubric.items()])
        plot, hero = data["plot"], next(iter(data["plot"]["at"]))
        events = find_events(plot, data["goal"], data["steps"]) or []
        if rng.random() < 0.5 and len(events) + 1 <= data["steps"]:
            events.insert(rng.randrange(len(events)), (hero, "mood", rng.choice(MOODS)))
        if 0.5 <= kind < 0.75 and len(events) + 1 <= data["steps"]:
            events.insert(0, find_impossible_event(plot))
        if kind < 0.75:
            return self.tell_turns(example, self.write_steps(example, events))
        calls, state, careless = list[str](), self.begin(example), True
        while not state["over"]:
            event = events[0] if events else (hero, "mood", rng.choice(MOODS))
            avoided = rng.choice(VERBS[event[1]]) if careless and event[1] in VERBS else data["forbidden"]
            calls.append(write_call("step", write_sentence(plot, event, avoided)))
            after = self.step(example, state, POLICY, calls[-1], rng).state
            careless = after["wrong"] == state["wrong"]  # a word that the reader has not heard is said in the other way
            events, state = events[careless:], after
        return self.tell_turns(example, calls)


def find_impossible_event(plot: Plot) -> Event:
    """The first person takes what is elsewhere, or goes where they are."""
    hero, place = next(iter(plot["at"].items()))
    return (hero, "go", place) if not plot["holder"] and plot["place"] == place else (hero, "take", plot["thing"])


def write_prompt(data: dict[str, Any]) -> str:
    plot, goal = data["plot"], data["goal"]
    people = " ".join(f"{who} is at the {place}." for who, place in plot["at"].items())
    lies = f"{plot['holder']} has the {plot['thing']}." if plot["holder"] else f"The {plot['thing']} is at the {plot['place']}."
    end = f"In the end {goal[1]} has the {plot['thing']}." if goal[0] == "has" else f"In the end the {plot['thing']} is at the {goal[1]}."
    never = f" Never say {data['forbidden']}." if data["forbidden"] else ""
    return f"Tell a {data['genre']} story. {people} {lies} {end}{never}"
