"""Everything about a run that can be checked before a model loads, in well under a second and without torch.

``run_preflight_checks`` returns what stops the run (problems), what a person should know (warnings), its batch arithmetic, a few of its prompts,
and the reward functions' verdict on answers whose worth is known. ``PreflightReport.as_json`` is what ``python -m trainers preflight`` prints.
"""

import os
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from trainers.catalog.entries import entries_for
from trainers.checks.dryrun import DryRun, about_tokens, dry_run, gold_of
from trainers.checks.machine_needs import find_machine_problems
from trainers.checks.memory_remedy import MemoryRemedy, find_memory_remedy
from trainers.checks.model_facts import ModelAnswer, ModelFacts
from trainers.checks.model_memory import estimate_training_memory
from trainers.checks.model_settings import find_unsuitable_settings
from trainers.checks.trl_needs import find_trl_problems, find_wrong_data
from trainers.contract import spans, stacking
from trainers.contract.batches import compute_batch_figures
from trainers.contract.hyperparameters import GKD, Demonstrated, GroupRollouts, Preferences, Reward, Rollouts
from trainers.contract.machine import Machine, describe_this_machine
from trainers.contract.memory import MemoryPart
from trainers.contract.problems import Problem, SpecError
from trainers.contract.spec import HUMAN, RunSpec, TinyPolicy
from trainers.contract.suggestions import Suggestion
from trainers.data import datasets, identity
from trainers.data.samples import TrainingSample, samples_of
from trainers.judges.rewards import weights_of
from trainers.policies.checks import check_policy, check_teacher, template_of
from trainers.rewards.columns import close_columns, compose_task, find_column_problems, find_weight_problems, list_scorers
from trainers.tasks.base import Example, Task
from trainers.tasks.registry import UnknownTask, load_chosen_task
from trainers.worlds.base import World

SHOWN = 4  # sampled prompts in the report
PROBED = 64  # examples looked at for lengths
DATASET_BYTES = 48 << 20  # of a dataset checked here; the trainer checks all of it
TEMPLATE_TOKENS = 9  # a chat template adds about this many to a prompt


@dataclass
class ModelReport:
    """What is known of the model that the policy is; ``memory`` of training it as the spec says, empty where that cannot be estimated.
    ``available``: bytes that the machine has for it, 0 where nobody knows; ``remedy``: what to change where that is too little."""

    facts: ModelFacts
    memory: list[MemoryPart]
    available: int = 0
    remedy: MemoryRemedy | None = None


@dataclass
class PreflightReport:
    """``ok`` when nothing stops the run. Problems and warnings have field, value, message and fix."""

    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    batch: dict[str, int | float] = field(default_factory=dict)
    samples: list[TrainingSample] = field(default_factory=list)
    gold: list[DryRun] = field(default_factory=list)
    model: ModelReport | None = None

    @property
    def ok(self) -> bool:
        return not self.problems

    def refuse(self, where: str, value: Any, message: str, fix: str) -> None:
        self.problems.append(Problem(where, value, message, fix))

    def warn(self, where: str, value: Any, message: str, fix: str) -> None:
        self.warnings.append(Problem(where, value, message, fix))

    def as_json(self) -> dict[str, Any]:
        return {"ok": self.ok} | asdict(self)


def build_refusal_report(error: SpecError) -> PreflightReport:
    """The report on something that is not even a spec."""
    return PreflightReport(problems=error.problems)


def run_preflight_checks(
    spec: RunSpec, policy_pending: bool = False, model: ModelAnswer | None = None, machine: Machine | None = None
) -> PreflightReport:
    """Checks a spec. ``policy_pending``: the policy is of a run that has not finished yet, so it is not looked at. ``model``: what was found out
    about the model that the policy is, or comes from; without it nothing is said about that. ``machine``: the one that is to train, else this one.
    """
    machine = machine or describe_this_machine()
    report = PreflightReport()
    context = check_policy(spec, report.problems, report.warnings, policy_pending)
    if context is None and model is not None and model.facts is not None:
        context = model.facts.context
    if spec.teacher is not None:
        check_teacher(spec.teacher, report.problems, report.warnings)
    stacked = stacking.check_stack(spec, entries_for(spec))
    report.problems, report.warnings = report.problems + stacked.problems, report.warnings + stacked.warnings
    task = check_task(spec, report)
    rows = check_dataset(spec, report)
    check_span_credit(spec, rows, report)
    if stacking.find_pair_reader(spec, entries_for(spec)):
        rows = None  # what is asked are the task's prompts
    report.batch = compute_batch_figures(spec, None if rows is None else len(rows), None if task is None else task.available)
    check_machine(spec, report)
    report.problems += find_machine_problems(spec, machine)
    if task is not None:
        try:
            if check_splits(spec, task, report):
                try_task(spec, task, rows, context, report)
        except Exception as error:  # third-party code: anything can happen in it
            report.refuse("task.name", task.name, f"the task fails: {type(error).__name__}: {error}", "correct the task")
    if model is not None:
        check_model(spec, model, machine, report)
    return report


def check_model(spec: RunSpec, model: ModelAnswer, machine: Machine, report: PreflightReport) -> None:
    """What the look-up said, what the model takes, and settings that do not suit it. Prompts are those of the report."""
    report.problems, report.warnings = report.problems + model.problems, report.warnings + model.warnings
    prompt_tokens = max((about_tokens(" ".join(one["content"] for one in sample.prompt)) + TEMPLATE_TOKENS for sample in report.samples), default=0)
    facts = model.facts
    if machine.memory and not machine.gpu:
        spec = spec.model_copy(update={"device": "cpu"})  # auto is bf16 on a GPU only
    if facts is not None:
        memory = estimate_training_memory(facts, spec, prompt_tokens, machine.memory)
        remedy = find_memory_remedy(facts, spec, prompt_tokens, machine.memory, machine.gpu and "bitsandbytes" in machine.packages)
        report.model = ModelReport(facts, memory, machine.memory, remedy)
        if facts.chat_template is False and facts.found == "hub":
            message = "the model has no chat template, so prompts cannot be written as messages"
            report.refuse("policy.name", getattr(spec.policy, "name", ""), message, "use an instruction-tuned model")
    if facts is not None or model.unresolved:
        report.warnings += find_unsuitable_settings(spec, facts, prompt_tokens)


def try_task(spec: RunSpec, task: Task, rows: list[datasets.Row] | None, context: int | None, report: PreflightReport) -> None:
    """Everything that needs the task's own code."""
    examples = draw_examples(spec, task, rows)
    report.samples = samples_of(spec, task, rows, examples[:SHOWN])
    report.problems += find_wrong_data(task, examples)
    check_lengths(spec, task, examples, context, report)
    check_rows_fit(spec, task, examples, rows, report)
    check_rewards(spec, task, examples, report)


def check_task(spec: RunSpec, report: PreflightReport) -> Task | None:
    """The task, when it exists and has the difficulty and reward functions the spec names."""
    try:
        task = load_chosen_task(spec.task, spec.seed)
    except UnknownTask as error:
        message, _, fix = str(error).partition(": ")
        report.refuse("task.name", spec.task.name, message, fix)
        return None
    except SpecError as error:
        report.problems += error.problems
        return None
    if spec.task.difficulty not in task.difficulties:
        report.refuse("task.difficulty", spec.task.difficulty, f"{task.name} has no such difficulty", f"use one of {', '.join(task.difficulties)}")
        return None
    if problem := find_turn_problem(spec, task):
        report.problems.append(problem)
    report.problems += find_trl_problems(spec, task)
    if spec.human is not None and HUMAN in task.rewards:
        report.refuse("human.share", spec.human.share, f"{task.name} has a reward function of its own called {HUMAN}", "rename it, or ask nobody")
    if problems := find_column_problems(task, spec):
        report.problems += problems
        return None
    composed = compose_task(task, spec)
    report.problems += find_weight_problems(composed, spec)
    return composed


def find_turn_problem(spec: RunSpec, task: Task) -> Problem | None:
    """Where the task's world answers and the trainer samples single answers."""
    if task.max_turns == 1 or task.trl is not None:
        return None
    if spec.training.takes_turns:
        return find_turns_of_vllm(spec, task)
    message = f"samples single answers, and {task.name} has up to {task.max_turns} turns"
    return Problem("training.trainer", spec.training.trainer, message, "train GRPO, or choose a task of one turn")


def find_turns_of_vllm(spec: RunSpec, task: Task) -> Problem | None:
    """Several turns are sampled by the lab's own loop, which vLLM would stand beside without a use."""
    if not (isinstance(spec.training, GroupRollouts) and spec.training.uses_vllm):
        return None
    message = f"{task.name} has up to {task.max_turns} turns, which are sampled with transformers"
    return Problem("training.generation", spec.training.generation, message, "use transformers, or a task of one turn")


def check_splits(spec: RunSpec, task: Task, report: PreflightReport) -> bool:
    """Whether the task has the demonstrations that the run learns from. Warns where there is nothing to evaluate on."""
    if spec.evaluation.prompts and not isinstance(spec.training, Reward) and not task.examples("heldout", 1, spec.seed, spec.task.difficulty):
        report.warn(
            "evaluation.prompts", spec.evaluation.prompts, f"{task.name} has no held-out rows: nothing is evaluated", "hold out a share of its rows"
        )
    cold = isinstance(spec.policy, TinyPolicy) and spec.policy.cold_start
    if not cold and not (isinstance(spec.training, Demonstrated) and spec.dataset is None):
        return True
    try:
        task.draw_demonstrations(1, spec.seed, spec.task.difficulty)
    except LookupError as error:
        fix = (
            "map a column of demonstrations in the task, or start from a model without a cold start"
            if cold
            else "map a column of demonstrations in the task"
        )
        report.refuse("policy.cold_start" if cold else "task.name", True if cold else task.name, str(error), fix)
        return False
    return True


def check_dataset(spec: RunSpec, report: PreflightReport) -> list[datasets.Row] | None:
    """The rows of the run's own dataset; None without one, or with one that cannot be used."""
    reader = stacking.find_pair_reader(spec, entries_for(spec))
    if spec.dataset is None:
        if reader:
            report.refuse("dataset.path", None, f"{reader} needs preference pairs", "choose a dataset of prompts with a chosen and a rejected answer")
        return None
    path, training = Path(spec.dataset.path), spec.training
    try:
        if spec.dataset.sha256 is not None:
            identity.check_dataset_digest(spec.dataset)
        checked = datasets.check_dataset_file(path, training.trainer, DATASET_BYTES)
    except SpecError as error:
        report.problems += error.problems
        return None
    if reader or spec.training.trainer == "procedure":
        check_answer_pairs(path, checked.rows, reader, report)
    if not checked.complete:
        report.warn("dataset.path", str(path), f"only the first {len(checked.rows)} rows were checked", "the trainer checks all of them first")
    elif isinstance(training, Rollouts) and not reader and len(checked.rows) < (needed := training.prompts_per_batch(spec.resources.processes)):
        message = f"has {len(checked.rows)} prompts where one generation batch needs {needed}"
        report.refuse("dataset.path", str(path), message, "add rows, or make the batch smaller or the groups larger")
    check_columns(spec, checked.rows, report)
    if datasets.calls_tools(checked.rows) and (template := template_of(spec.policy)) is not None and datasets.TOOL_CALLS not in template:
        report.refuse("dataset.path", str(path), *datasets.UNRENDERED)
    return checked.rows


def check_answer_pairs(path: Path, rows: list[datasets.Row], reader: str, report: PreflightReport) -> None:
    """Whether a procedure's rows are preference pairs where its method reads them, and prompts with references where it does not."""
    examples = datasets.examples_from_rows(rows)
    if reader and (missing := sum(datasets.PAIR not in example.data for example in examples)):
        message, fix = (
            f"{missing} of {len(rows)} rows have no chosen and rejected answer, which {reader} needs",
            "choose a dataset of preference pairs",
        )
        report.refuse("dataset.path", str(path), message, fix)
    if not reader and any(map(datasets.is_bare_pair, examples)):
        report.refuse("dataset.path", str(path), *datasets.PAIRS_UNREAD)


def check_columns(spec: RunSpec, rows: list[datasets.Row], report: PreflightReport) -> None:
    """What becomes of the weights and margins of a preference dataset."""
    assert spec.dataset is not None
    path, trainer = spec.dataset.path, spec.training.trainer
    there = [name for name in datasets.NUMBERS if any(row.get(name) is not None for row in rows)]
    if trainer == "dpo":
        base = stacking.base_choice(spec)
        if datasets.WEIGHT in there and all(row.get(datasets.WEIGHT) == 0 for row in rows):
            report.refuse("dataset.path", path, "every pair has weight 0: there is nothing to learn from", "give at least one pair a weight above 0")
        if base.config.get("use_margins") and datasets.MARGIN not in there:
            report.warn("base.config.use_margins", True, "no row has a margin", "turn it off, or freeze a version with margins")
    elif there and trainer in ("kto", "orpo", "cpo", "reward"):
        message = f"has {' and '.join(there)}, which {trainer} does not read: all rows are weighted equally"
        report.warn("dataset.path", path, message, "train DPO, or drop suspect rows in place of down-weighting them")


def check_span_credit(spec: RunSpec, rows: list[datasets.Row] | None, report: PreflightReport) -> None:
    """Warns where the method that trains on marked spans has none."""
    place = next((place for place, choice in enumerate(spec.methods) if choice.name == spans.METHOD), None)
    sides = datasets.COLUMNS[spec.training.trainer]
    if place is None or (spec.dataset is not None and rows is None) or any(spans.has_spans(row, sides) for row in rows or ()):
        return
    columns = " or ".join(spans.span_column(side) for side in sides if side in spans.SIDES)
    message = f"no row has marked spans ({columns}), so it changes nothing"
    report.warn(f"methods.{place}.name", spans.METHOD, message, "train on a version of a queue that asks for spans or steps, or remove the method")


def draw_examples(spec: RunSpec, task: Task, rows: list[datasets.Row] | None) -> list[Example]:
    """Examples of the run: its dataset's, else the task's."""
    if rows is not None and isinstance(spec.training, Rollouts):
        return datasets.examples_from_rows(rows[:PROBED])
    draw = task.draw_demonstrations if isinstance(spec.training, Demonstrated) and spec.dataset is None else partial(task.examples, "train")
    return draw(PROBED, spec.seed, spec.task.difficulty)


def check_machine(spec: RunSpec, report: PreflightReport) -> None:
    gpu = describe_this_machine().gpu
    if spec.device == "cuda" and not gpu:
        report.warn("device", "cuda", "no NVIDIA device is visible on this machine", "run it on a GPU worker, or choose device auto")
    if spec.precision == "bf16" and (spec.device == "cpu" or not gpu):
        report.warn("precision", "bf16", "bf16 is slower than fp32 on a CPU", "choose precision auto")
    if isinstance(spec.training, GroupRollouts) and spec.training.uses_vllm and find_spec("vllm") is None:
        fix = "run it on a worker that has it, or generate with transformers"
        report.warn("training.generation", spec.training.generation, "vllm is not installed on this machine", fix)
    untrained = isinstance(spec.policy, TinyPolicy) and not spec.policy.cold_start
    if untrained and not isinstance(spec.training, Demonstrated):
        message = "the weights are random: no answer will be right, so there is no reward signal"
        report.warn("policy.cold_start", False, message, "start from the cold-started policy (policy.cold_start: true), or train it with SFT first")
    folder = Path(spec.output).absolute()
    parent = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        report.warn("output", spec.output, f"{parent} cannot be written to on this machine", "choose another folder, or change its permissions")


def check_lengths(spec: RunSpec, task: Task, examples: list[Example], context: int | None, report: PreflightReport) -> None:
    training = spec.training
    if context is not None and isinstance(training, Demonstrated | Preferences) and training.max_length > context:
        report.refuse("training.max_length", training.max_length, f"the policy reads at most {context} tokens", f"use at most {context}")
    if not isinstance(training, Rollouts | Preferences | GKD) or not examples:
        return
    longest, asked = training.max_completion_length, [" ".join(message.content for message in example.prompt) for example in examples]
    if context is not None:
        words, tokens = max(len(text.split()) for text in asked), max(about_tokens(text) for text in asked)
        if longest + words + TEMPLATE_TOKENS > context:  # a token never spans two words: this cannot fit
            message = f"with a prompt of at least {words} tokens it is beyond the policy's context of {context}"
            fix = f"use at most {max(1, context - tokens - TEMPLATE_TOKENS)}"
            report.refuse("training.max_completion_length", longest, message, fix)
        elif longest + tokens + TEMPLATE_TOKENS > context:
            message = f"with a prompt of about {tokens} tokens it may be beyond the policy's context of {context}"
            report.warn("training.max_completion_length", longest, message, f"use at most {max(1, context - tokens - TEMPLATE_TOKENS)}")
    if isinstance(task, World):
        needed = task.episode_tokens  # the world's words count too
        message = f"the longest episodes of this world take up to about {needed} tokens and would be cut off"
    else:
        golds = [gold for gold in (gold_of(task, example) for example in examples) if gold is not None]
        needed = max((about_tokens(gold) for gold in golds), default=0) + 1
        message = f"gold answers of this task need up to about {needed} tokens and would be cut off"
    if needed > longest:
        report.warnings.append(Suggestion("training.max_completion_length", longest, message, f"use at least {needed}", suggestion=needed))


def check_rows_fit(spec: RunSpec, task: Task, examples: list[Example], rows: list[datasets.Row] | None, report: PreflightReport) -> None:
    """Warns when sequences to learn from are longer than max_length: their ends, with the answers, would be cut off."""
    training = spec.training
    if not isinstance(training, Demonstrated | Preferences):
        return
    if rows is not None:
        columns = datasets.COLUMNS[training.trainer]
        texts = [" ".join(message["content"] for column in columns[:2] for message in row[column]) for row in rows[:PROBED]]
    else:
        texts = [" ".join([*(message.content for message in example.prompt), gold_of(task, example) or ""]) for example in examples]
    lengths = [about_tokens(text) + TEMPLATE_TOKENS for text in texts]
    longer = sum(length > training.max_length for length in lengths)
    if longer:
        message = f"{longer} of the first {len(lengths)} sequences are longer (up to about {max(lengths)} tokens) and would be cut off"
        report.warn("training.max_length", training.max_length, message, f"use at least {max(lengths)}")


def check_rewards(spec: RunSpec, task: Task, examples: list[Example], report: PreflightReport) -> None:
    weights = weights_of(task, spec)
    if isinstance(spec.training, Rollouts) and not any(weights.values()):
        report.refuse("task.rewards", weights, "every weight is 0: there is nothing to learn from", "give at least one function a weight")
    try:
        found = dry_run(
            task,
            {name: weights[name] for name in task.rewards},
            examples,
            SHOWN,
            {column.name: f"rewards.{number}.definition" for number, column in enumerate(spec.rewards)},
        )
    finally:
        close_columns(list_scorers(task))
    report.gold, report.problems, report.warnings = found.runs, report.problems + found.problems, report.warnings + found.warnings
    if examples and isinstance(spec.training, Rollouts) and spec.dataset and all(run.reward is None for run in found.runs):
        report.refuse("dataset.path", spec.dataset.path, f"no reward function of {task.name} can score its rows", "add the data column it needs")
