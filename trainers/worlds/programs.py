"""Programs written from examples or from words, run on tests, and corrected by what the tests say.

``Code for 3 1 2 to 2 1 3, 5 0 4 to 4 0 5.`` is tried as ``<code>sort</code>``, gets ``<information>0 of 2, got 1 2 3</information>``, and the episode
ends with ``<code>reverse</code>``, which passes. Other tests stay hidden; the last program counts. The tiny policy's language is one of twenty
operations on a list, interpreted here; a larger policy can write Python, which runs in the sandbox (option). Programs over several turns are Cobalt's
(where two tests that are shown can have their results swapped), programs from documentation and documentation from programs BatCoder's.
"""

import random
from functools import lru_cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import MAX_TURN_CHARACTERS, POLICY, Said, State, Step, Tool, World, is_thought, make_rewards, parse_answer
from trainers.worlds.list_programs import (
    OPERATIONS,
    Case,
    Program,
    ProgramError,
    Values,
    draw_cases,
    draw_program,
    parse_program,
    read_document,
    run_cases,
    write_document,
    write_program,
    write_python,
    write_values,
)
from trainers.worlds.tool_use import write_answer, write_call, write_information

SHOWN, HIDDEN = 2, 3  # tests of a program
EASY = ["head", "last", "tail", "init"]  # told apart by how long the result is, and then by which end it is of
LEVELS = {"easy": (EASY, 1), "medium": ([*OPERATIONS], 1), "hard": ([*OPERATIONS], 2)}  # operations to choose from, and how many
FUNCTION = "f"


class ProgramsConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    language: Literal["lists", "python"] = Field(
        "lists", title="Language", description="Twenty operations on lists for the built-in policy, or Python, run in the sandbox."
    )
    write: Literal["code", "documentation", "both"] = Field(
        "code", title="Writes", description="A program, or the words that document one; both: half of the prompts ask for each."
    )
    documented: float = Field(0.5, ge=0, le=1, title="From words", description="Share of prompts that tell in words what the program does.")
    swapped: float = Field(0.0, ge=0, le=1, title="Swapped tests", description="Share of prompts whose two tests have each other's results.")

    @field_validator("language")
    @classmethod
    def check_sandbox(cls, language: str) -> str:
        if language == "python":
            from trainers.sandbox import probe_sandbox  # only who runs Python needs it

            probe = probe_sandbox()
            if not probe.holds:
                raise ValueError(probe.explain())
        return language


class Programs(World):
    name = "programs"
    title = "Programs and their tests"
    summary = "Write a small program from examples or from words; it is run on tests, and can be corrected twice."
    Config = ProgramsConfig
    config: ProgramsConfig
    difficulties = {"easy": "One of 4 operations, on either end of a list.", "medium": "One of 20 operations.", "hard": "Two of 20 operations."}
    demonstrations = (
        "Of mixed quality by design, so that reinforcement has strategies to choose between: 40 % are right at once, 25 % correct a wrong program,"
        " 35 % try programs at random, often the same one again."
    )
    tools = (Tool("code", "Runs a program on the tests that are shown: names of operations, some followed by a digit."),)
    max_turns = 3

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.rewards = make_rewards(
            self,
            {
                "correct": ("1 when the last program passes every test, hidden ones included. Words: when they tell a program that does.", 1.0),
                "passed": ("Share of all tests that the last program passes.", 0.0),
                "first": ("1 when the first program passes every test.", 0.5),
                "format": ("1 when every turn is one program, or the one answer documentation.", 0.0),
            },
        )

    @property
    def max_turn_tokens(self) -> int:  # type: ignore[override]
        return 24 if self.config.language == "lists" else 400

    @property
    def episode_tokens(self) -> int:  # type: ignore[override]
        return 72 if self.config.language == "lists" else 1_500

    def example(self, rng: random.Random, difficulty: str) -> Example:
        program, cases = draw_tested_program(rng, difficulty)
        shown = [list(case) for case in cases[:SHOWN]]
        if rng.random() < self.config.swapped and shown[0][1] != shown[1][1]:
            shown[0][1], shown[1][1] = shown[1][1], shown[0][1]
        documented = self.config.write == "documentation" or rng.random() < self.config.documented
        data = {"program": [list(one) for one in program], "cases": cases, "shown": shown, "level": difficulty}
        example = Example([Message("user", self.write_prompt(program, shown, documented))], write_program(program), data)
        return self.ask_for_words(example) if self.config.write == "both" and rng.random() < 0.5 else example

    def ask_for_words(self, example: Example) -> Example:
        """The same program, to be documented. Only where both are written can an example be asked for otherwise than the option says."""
        words = f"Words for {self.write_source(read_stored_program(example))}."
        return Example([Message("user", words)], example.reference, {**example.data, "writes": "documentation"})

    def is_documentation(self, example: Example) -> bool:
        """Whether words are to be written."""
        return bool(example.data.get("writes", self.config.write) == "documentation")

    def write_source(self, program: Program) -> str:
        return write_python(program) if self.config.language == "python" else write_program(program)

    def write_request(self, said: str) -> str:
        """Asks for a program: by tests, or by words that may be anybody's."""
        return f"Python function {FUNCTION}(x) of a list for {said}." if self.config.language == "python" else f"Code for {said}."

    def write_prompt(self, program: Program, shown: list[Case], documented: bool) -> str:
        is_python = self.config.language == "python"
        if self.config.write == "documentation":
            return f"Words for {self.write_source(program)}."
        if documented:
            said = write_document(program)
        else:
            said = ", ".join(f"{values} to {made}" if is_python else f"{write_values(values)} to {write_values(made)}" for values, made in shown)
        return self.write_request(said)

    def begin(self, example: Example) -> State:
        return {"rates": [], "last": "", "over": False, "errors": 0}

    def step(self, example: Example, state: State, seat: str, text: str, rng: random.Random) -> Step:
        if self.is_documentation(example):
            return self.take_document(example, state, parse_answer(text))
        code = self.parse_code(text)
        if code is None or "cases" not in example.data:
            return Step({**state, "errors": state["errors"] + 1, "over": True}, done=True, facts={"error": "not one program"})
        cases, shown = example.data["cases"], example.data["shown"]
        made = self.run_code(code, cases)
        rate = count_passed(made, cases) / len(cases)
        seen = count_passed(made[:SHOWN], shown)
        wrong = next((one for one, case in zip(made, shown, strict=False) if one != case[1]), "")
        rates = [*state["rates"], rate]
        facts: dict[str, Any] = {"tool": "code", "query": code[:200], "passed": seen, "rate": rate}
        if isinstance(wrong, str) and wrong:
            facts["error"] = wrong
        done = seen == SHOWN or len(rates) == self.max_turns
        after = {**state, "rates": rates, "last": code[:500], "over": done}
        if done:
            return Step(after, done=True, reward=rate, facts=facts)
        got = wrong if isinstance(wrong, str) else f"got {write_values(wrong)}"
        return Step(after, write_information(f"{seen} of {SHOWN}, {clean_text(got)}"), reward=rate, facts=facts)

    def take_document(self, example: Example, state: State, words: str | None) -> Step:
        """Ends the episode. The words are read by a rule in the place of an implementer; names of operations in them are no words."""
        if words is None or "cases" not in example.data:
            return Step({**state, "errors": state["errors"] + 1, "over": True}, done=True, facts={"error": "not one answer"})
        cases, facts = example.data["cases"], dict[str, Any](query=words[:200])
        try:
            rate = count_passed(run_cases(write_program(read_document(words)), freeze_inputs(cases)), cases) / len(cases)
        except ProgramError as error:
            rate, facts["error"] = 0.0, str(error)
        return Step({**state, "rates": [rate], "last": words[:500], "over": True}, done=True, reward=rate, facts=facts)

    def parse_code(self, text: str) -> str | None:
        """The program of a turn that is one, with a thought before it or none. Python may hold ``<``, though no tag of the world."""
        [tool] = self.tools
        before, opened, code = text.removesuffix(tool.closing).partition(tool.opening)
        whole = opened and text.endswith(tool.closing) and len(text) <= MAX_TURN_CHARACTERS and is_thought(before.strip())
        tags = [f"<{slash}{tag}>" for tag in self.tags for slash in ("", "/")] if self.config.language == "python" else ["<"]
        return code.strip("\n") if whole and not any(tag in code for tag in tags) else None

    def run_code(self, code: str, cases: list[Case]) -> tuple[Any, ...]:
        """What the program makes of each input; the words of an error where it makes nothing. Raises SandboxUnavailable."""
        return (run_python_cases if self.config.language == "python" else run_cases)(code, freeze_inputs(cases))

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        rates, valid = state["rates"], not state["errors"]
        return {
            POLICY: {
                "correct": float(valid and rates[-1:] == [1.0]),
                "passed": rates[-1] if rates else 0.0,
                "first": float(rates[:1] == [1.0]),
                "format": float(valid and bool(rates)),
            }
        }

    def way(self, example: Example, state: State) -> list[str]:
        """The program, as often as tests with swapped results send it back."""
        if state["over"]:
            raise LookupError("the episode is over")
        program, data = read_stored_program(example), example.data
        if self.is_documentation(example):
            return [write_answer(write_document(program))]
        times = 1 if data["shown"] == data["cases"][:SHOWN] else self.max_turns - len(state["rates"])
        return [self.write_code(program)] * times

    def write_code(self, program: Program) -> str:
        return write_call("code", write_program(program) if self.config.language == "lists" else f"\n{write_python(program)}")

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        names, count = LEVELS[example.data["level"]]
        kind, way = rng.random(), self.way(example, self.begin(example))
        if self.is_documentation(example):
            return self.tell_turns(example, way if kind < 0.6 else [write_answer(write_document(draw_program(rng, names, count)))])
        if kind < 0.4:
            return self.tell_turns(example, way)
        wrong = [self.write_code(draw_program(rng, names, count)) for _ in range(2)]
        calls = [wrong[0], *way, *way] if kind < 0.65 else [wrong[0], rng.choice(wrong), wrong[1]]
        state, said = self.begin(example), list[str]()
        while not state["over"]:
            said.append(calls[len(said)])
            state = self.step(example, state, POLICY, said[-1], rng).state
        return self.tell_turns(example, said)

    def read(self, text: str) -> Example | None:
        """``reverse add 3``: the program of a seat as a problem, with tests of its own; None for what is none or changes no list."""
        try:
            program = parse_program(text)
            cases = draw_cases(random.Random(text), program, SHOWN + HIDDEN)
        except ProgramError:
            return None
        data = {"program": [list(one) for one in program], "cases": cases, "shown": cases[:SHOWN], "level": "hard"}
        return Example([Message("user", self.write_prompt(program, cases[:SHOWN], False))], write_program(program), data)


def read_stored_program(example: Example) -> Program:
    """The program behind an example."""
    return tuple((name, number) for name, number in example.data["program"])


def draw_tested_program(rng: random.Random, difficulty: str) -> tuple[Program, list[Case]]:
    while True:
        program = draw_program(rng, *LEVELS[difficulty])
        try:
            return program, draw_cases(rng, program, SHOWN + HIDDEN)
        except ProgramError:  # like the even ones among the odd
            continue


def count_passed(made: tuple[Any, ...], cases: list[Case]) -> int:
    return sum(one == case[1] for one, case in zip(made, cases, strict=False))


def freeze_inputs(cases: list[Case]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(case[0]) for case in cases)


def clean_text(text: str) -> str:
    return text.replace("<", "").replace(">", "")[:100]


@lru_cache(maxsize=1024)
def run_python_cases(source: str, inputs: tuple[tuple[int, ...], ...]) -> tuple[Values | str, ...]:
    """What a Python function makes of each input, in a fork of the sandbox each; one line of its error where it makes no list of numbers.

    Raises SandboxUnavailable on a machine that cannot hold programs.
    """
    from trainers.sandbox import ProgramLimits, get_shared_sandbox

    sandbox, found = get_shared_sandbox(), list[Values | str]()
    for values in inputs:
        result = sandbox.call_function(source, FUNCTION, [list(values)], ProgramLimits(seconds=1.0, memory=64 << 20, output=4096))
        listed = isinstance(result.value, list) and all(type(one) is int for one in result.value)
        found.append(result.value if listed else result.error[:100] or "no list of numbers")
        if result.outcome in ("timeout", "memory"):  # the others would cost as much
            break
    return (*found, *found[-1:] * (len(inputs) - len(found)))
