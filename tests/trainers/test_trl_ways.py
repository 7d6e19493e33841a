"""Tools, environments and rollout functions of TRL in a task of one's own: trained as TRL trains them, and shown with their turns and masks."""

import random
import re
from typing import Any, ClassVar

import pytest
from datasets import Dataset
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from tests.trainers.conftest import events_in, make_spec
from tests.trainers.tool_policy import build_tool_policy, build_tool_tokenizer, find_tool_results, script_turns, write_tool_call
from trainers.adapters.arguments import build_common_arguments
from trainers.attempt import train
from trainers.attempt.context import Attempt
from trainers.attempt.report import Reporter
from trainers.attempt.stop import StopRequest
from trainers.attempt.telemetry import Pieces
from trainers.contract import arrays
from trainers.contract.events import Message, Metrics, Rollout
from trainers.contract.spool import SPOOL, SpoolWriter
from trainers.policies import loading as policies
from trainers.policies.sampling import as_rows
from trainers.tasks import registry
from trainers.tasks.base import Example, Reward, Task
from trainers.tasks.trl_rollouts import TRLRollouts

NAMES = ("loss", "grad_norm", "reward", "completions/mean_length", "completions/clipped_ratio")


def multiply(a: int, b: int) -> int:
    """Multiplies two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a * b


def fill(count: int) -> str:
    """Writes many words.

    Args:
        count: How many.
    """
    return "word " * count


def shout(word: str) -> str:
    """Says something bad.

    Args:
        word: A word.
    """
    return f"{word}\ud800\x00<script>alert(1)</script>"


def is_correct(answer: str, example: Example) -> float:
    return float(answer.split()[-1:] == [example.reference])


class Products(Task):
    name = "products"
    title = "Products"
    summary = "Multiplies two numbers."
    difficulties: ClassVar = {"easy": "Two digits."}
    rewards: ClassVar = {"correct": Reward(is_correct, "1 when the last word is the product.", 1.0)}
    demonstrations = "None."
    max_turns = 2
    trl = TRLRollouts(tools=(multiply, fill, shout))

    def example(self, rng: random.Random, difficulty: str) -> Example:
        a, b = rng.randint(10, 99), rng.randint(10, 99)
        return Example([Message("user", f"What is {a} times {b}?")], str(a * b), {"a": a, "b": b})

    def gold(self, example: Example) -> str:
        return example.reference


class Vault:
    """An environment: a product opens it."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1

    def reset(self, prompt: Any, a: int, b: int) -> str:
        self.product, self.tries = a * b, 0
        self.is_open = False
        return " The vault is closed."

    def enter(self, code: int) -> str:
        """Enters a code.

        Args:
            code: The code.
        """
        self.tries += 1
        self.is_open = code == self.product
        return "open" if self.is_open else "closed"

    def get_reward(self) -> float:
        return self.is_open - 0.1 * self.tries


class Vaults(Products):
    name = "vaults"
    trl = TRLRollouts(environment_factory=Vault)


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
    return {**found, "logprobs": None}


class Played(Products):
    name = "played"
    rewards: ClassVar = {"correct": Products.rewards["correct"], "points": Reward(lambda text, example: None, "What the game says.", 1.0)}
    max_turns = 1
    trl = TRLRollouts(rollout_func=play)


TASKS = {kind.name: kind for kind in (Products, Vaults, Played)}


def asked_numbers(text: str) -> tuple[int, int]:
    a, b = re.findall(r"What is (\d+) times (\d+)\?", text)[-1]
    return int(a), int(b)


def write_with_tools(text: str, place: int) -> str:
    """Of every four: a call and its result; one that raises; an answer without a call; a result that does not fit."""
    if results := find_tool_results(text):
        return f"It is {results[-1]}" if results[-1].isdigit() else "I do not know"
    a, b = asked_numbers(text)
    return (
        f"Let me see. {write_tool_call('multiply', a=a, b=b)}",
        write_tool_call("multiply", a=a),
        f"It is {a + b}",
        write_tool_call("fill", count=500),
    )[place % 4]


def write_codes(text: str, place: int) -> str:
    """Of every four: the code; a wrong one; no code; an answer that is cut off."""
    if results := find_tool_results(text):
        a, b = asked_numbers(text)
        return f"{results[-1]} {a * b}"
    a, b = asked_numbers(text)
    return (write_tool_call("enter", code=a * b), write_tool_call("enter", code=a + b), "I give up", "and so on" * 100 + "…")[place % 4]


SCRIPTS = {"products": write_with_tools, "vaults": write_codes}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return build_tool_policy(tmp_path_factory.mktemp("policy") / "tools")


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tasks are there, and the policy writes what the script of the task says."""
    tasks = {name: registry.make_usable_task(kind, name) for name, kind in TASKS.items()}
    monkeypatch.setattr(registry, "load_task_registry", lambda: registry.Registry(tasks, {}))

    def write(text: str, place: int) -> str:
        return SCRIPTS["vaults" if "The vault is closed." in text else "products"](text, place)

    script_turns(monkeypatch, build_tool_tokenizer(), write)


def spec_of(folder: Any, output: Any, task: str, **changes: Any) -> Any:
    policy = {"kind": "folder", "path": str(folder)}
    settings = {"training__max_completion_length": 120, "training__max_steps": 2, "training__learning_rate": 1e-2, **changes}
    return make_spec(output, base={"name": "grpo"}, policy=policy, task={"name": task, "difficulty": "easy"}, **settings)


def train_in_lab(spec: Any, output: Any) -> tuple[list[dict[str, float]], list[Rollout]]:
    assert train.run_training(spec, output) == train.FINISHED
    events = events_in(output)
    steps = [event.values for event in events if isinstance(event, Metrics) and "loss" in event.values]
    return steps, [event for event in events if isinstance(event, Rollout)]


def train_with_trl(spec: Any, output: Any) -> list[dict[str, float]]:
    """TRL's own trainer on the same task, as its documentation has it."""
    task = registry.get_task(spec.task.name)
    attempt = Attempt(
        spec, output, task, policies.load_policy(output / "policy", spec), Reporter(SpoolWriter(output / SPOOL), 1), StopRequest(output, None)
    )
    examples = task.examples("train", spec.training.prompts, spec.seed, "easy")
    trl = task.trl

    def correct(completions: Any, a: list[int], b: list[int], **rest: Any) -> list[float]:
        return [float(made[-1]["content"].split()[-1:] == [str(x * y)]) for made, x, y in zip(completions, a, b, strict=True)]

    def points(completions: Any, points: list[float], **rest: Any) -> list[float]:
        return points

    names = ("num_generations", "max_completion_length", "temperature", "beta", "num_iterations", "steps_per_generation")
    values = (
        build_common_arguments(attempt) | {name: getattr(spec.training, name) for name in names} | {"top_p": 1.0, "top_k": 0, "loss_type": "grpo"}
    )
    trainer = GRPOTrainer(
        model=attempt.policy.model,
        processing_class=attempt.policy.tokenizer,
        args=GRPOConfig(**values, max_tool_calling_iterations=task.max_turns - 1),
        reward_funcs=[correct, points] if trl.rollout_func else [correct],
        train_dataset=Dataset.from_list([{"prompt": as_rows(example.prompt), **example.data} for example in examples]),
        tools=list(trl.tools) or None,
        environment_factory=trl.environment_factory,
        rollout_func=trl.rollout_func,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return [entry for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.training
@pytest.mark.parametrize("name", TASKS)
def test_a_task_trains_as_trl_trains_it(tmp_path, folder, scripted, name):
    spec = spec_of(folder, tmp_path, name, evaluation={"prompts": 6, "every": 1})
    ours, rollouts = train_in_lab(spec, tmp_path)
    (tmp_path / "trl").mkdir()
    (tmp_path / "trl" / "policy").symlink_to(folder)
    theirs = train_with_trl(spec, tmp_path / "trl")
    found = [[[step[name] for name in NAMES] for step in steps] for steps in (ours, theirs)]
    assert found[0] == found[1]
    assert len(found[0]) == 2
    assert all(step["grad_norm"] > 0 for step in ours)
    check_rollouts(rollouts, policies.load_tokenizer(folder))


def check_rollouts(rollouts, tokenizer):
    """Texts, masks and turns of every event agree with its tokens."""
    assert {rollout.phase for rollout in rollouts} == {"train", "heldout"}
    pieces = Pieces(tokenizer)
    for rollout in rollouts:
        ids = arrays.unpack_array(rollout.ids)
        assert tokenizer.decode(list(ids), skip_special_tokens=True).replace("\x00", "\u2400") == rollout.completion
        assert sum(pieces.lengths(list(ids), rollout.completion)) == len(rollout.completion)
        if rollout.turns:
            mask = arrays.unpack_array(rollout.mask)
            assert [turn.end for turn in rollout.turns][-1] == len(ids) == len(mask)
            for turn in rollout.turns:
                assert set(mask[turn.start : turn.end].tolist()) == {int(turn.role == "assistant")}
            assert rollout.length == int(mask.sum())
        logprobs = arrays.unpack_array(rollout.logprobs)
        assert (logprobs <= 0).all()
        assert logprobs.any()
