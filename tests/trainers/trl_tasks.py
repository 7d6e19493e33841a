"""Tasks that TRL answers, one for each of its ways, and what a scripted policy writes in them."""

import random
import re
from types import SimpleNamespace
from typing import Any, ClassVar

from tests.trainers.test_adding_a_method import NAMED, ROOT
from tests.trainers.tool_policy import find_tool_results, write_tool_call
from trainers.tasks.base import Example, Reward, Task
from trainers.tasks.trl_rollouts import TRLRollouts

DOCUMENT = ROOT / "docs" / "trl-rollouts.md"


def load_documented() -> Any:
    """The module that the documentation writes out."""
    [(_, code)] = NAMED.findall(DOCUMENT.read_text())
    module: dict[str, Any] = {"__name__": "my_package.products"}
    exec(code, module)
    return SimpleNamespace(**module)


DOCUMENTED = load_documented()
Products: type[Task] = DOCUMENTED.Products


def shout(word: str) -> str:
    """Says something bad.

    Args:
        word: A word.
    """
    return f"{word}\ud800\x00<script>alert(1)</script>"


class Shouts(Products):  # type: ignore[misc,valid-type]
    name = "shouts"
    trl = TRLRollouts(tools=(DOCUMENTED.multiply, shout))


class Vault:
    """An environment: a product opens it."""

    made: ClassVar[int] = 0

    def __init__(self) -> None:
        type(self).made += 1

    def reset(self, prompt: Any, a: int, b: int) -> str:
        self.product, self.tries, self.is_open = a * b, 0, False
        return " The vault is closed."

    def enter(self, code: int) -> str:
        """Enters a code.

        Args:
            code: The code.
        """
        self.tries += 1
        self.is_open = code == self.product
        return "open" if self.is_open else "closed"

    def get_reward(self) -> float | None:
        return self.is_open - 0.1 * self.tries


class Vaults(Products):  # type: ignore[misc,valid-type]
    name = "vaults"
    trl = TRLRollouts(environment_factory=Vault)


class Safe(Vault):
    async def get_reward(self) -> float | None:  # type: ignore[override]
        return Vault.get_reward(self)


class Chest(Vault):
    def reset(self, prompt: Any, a: int, b: int) -> None:  # type: ignore[override]
        super().reset(prompt, a, b)

    get_reward = None  # type: ignore[assignment]


class Several(Products):  # type: ignore[misc,valid-type]
    """Safes, which say their reward later, and chests, which say none."""

    name = "several"
    trl = TRLRollouts(environment_factory={"safe": Safe, "chest": Chest})

    def example(self, rng: random.Random, difficulty: str) -> Example:
        made = super().example(rng, difficulty)
        return Example(made.prompt, made.reference, {**made.data, "environment": "safe" if made.data["a"] % 2 else "chest"})


def play(prompts: list[Any], trainer: Any) -> dict[str, Any]:
    """A rollout function: every answer is a guess, a word of the environment's and a second guess."""
    tokenizer = trainer.processing_class
    found: dict[str, list[Any]] = {"prompt_ids": [], "completion_ids": [], "env_mask": [], "points": []}
    for place, prompt in enumerate(prompts):
        parts = [tokenizer.encode(text, add_special_tokens=False) for text in (f"{place} or ", "no, ", f"{place % 3}")]
        end = [tokenizer.eos_token_id] * (place % 4 != 3)
        found["prompt_ids"].append(tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=True, return_dict=True)["input_ids"])
        found["completion_ids"].append(parts[0] + parts[1] + parts[2] + end)
        found["env_mask"].append([1] * len(parts[0]) + [0] * len(parts[1]) + [1] * (len(parts[2]) + len(end)))
        found["points"].append(0.5 * (place % 3))
    return {**found, "logprobs": None, "level": 3}


class Played(Products):  # type: ignore[misc,valid-type]
    name = "played"
    rewards: ClassVar = {"correct": Products.rewards["correct"], "points": Reward(lambda text, example: None, "What the game says.", 1.0)}
    max_turns = 1
    trl = TRLRollouts(rollout_func=play)


def count_letters(answer: str, example: Example) -> float:
    return sum(char in "aeiou" for char in answer) / max(1, len(answer))


class Noise(Vaults):
    """Something to learn from what random weights write."""

    name = "noise"
    rewards: ClassVar = {"vowels": Reward(count_letters, "Share of vowels.", 1.0)}


TASKS = {kind.name: kind for kind in (Products, Shouts, Vaults, Several, Played, Noise)}


def read_numbers(text: str) -> tuple[int, int]:
    a, b = re.findall(r"What is (\d+) times (\d+)\?", text)[-1]
    return int(a), int(b)


def write_products(text: str, place: int) -> str:
    """Of every four: a call and its result; a call that raises; an answer without a call; a call whose result does not fit."""
    a, b = read_numbers(text)
    if results := find_tool_results(text):
        return f"It is {results[-1]}" if results[-1].isdigit() else "I do not know"
    return (
        f"Let me see. {write_tool_call('multiply', a=a, b=b)}",
        write_tool_call("multiply", a=a),
        f"It is {a + b}",
        "7" * 80 + write_tool_call("multiply", a=a, b=b),
    )[place % 4]


def write_shouts(text: str, place: int) -> str:
    """Of every four: a bad tool; calls without end; a call with an answer that is cut off; the right answer."""
    a, b = read_numbers(text)
    if not find_tool_results(text):
        calls = (write_tool_call("shout", word="</tool_response>"), *(write_tool_call("multiply", a=a, b=number) for number in (1, 2)))
        return (*calls, str(a * b))[place % 4]
    if '"b": 1}' in text:
        return write_tool_call("multiply", a=a, b=1)
    return "7" * 200 + "…" if '"b": 2}' in text else "What?"


def write_codes(text: str, place: int) -> str:
    """Of every four: the code; a wrong one; no code; an answer that is cut off."""
    a, b = read_numbers(text)
    if results := find_tool_results(text):
        return f"{results[-1]} {a * b}"
    return (write_tool_call("enter", code=a * b), write_tool_call("enter", code=a + b), "I give up", "and so on " * 100 + "…")[place % 4]


SCRIPTS = {"products": write_products, "shouts": write_shouts, "vaults": write_codes, "several": write_codes}
