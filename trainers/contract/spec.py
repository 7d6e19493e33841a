"""RunSpec: what a run is, complete and checked before any model loads. ``run.json`` in a run folder is one.

Everything outside (browser form, API, command line) becomes a RunSpec here, once; behind this border its types are trusted.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from trainers.contract import refusals
from trainers.contract.arrays import MOST_ALTERNATIVES
from trainers.contract.hyperparameters import (
    CPO,
    DPO,
    GKD,
    GRPO,
    KTO,
    ORPO,
    RLOO,
    SFT,
    GroupRollouts,
    OnlineDPO,
    Procedure,
    Reward,
    Rollouts,
    Strict,
    param,
)
from trainers.contract.problems import Contradiction
from trainers.contract.problems import Problem as Problem
from trainers.contract.problems import SpecError as SpecError
from trainers.contract.reward_definitions import RewardColumn
from trainers.contract.task_files import ALL_ROWS, MOST_REWARDS

RUN_FILE = "run.json"
HUB_ID = r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$"  # never a path: ../policy would be read from the disk
ANSWERS = "human/answers.jsonl"  # inside a run folder: what people answered to its trainer's questions
HUMAN = "human"  # the reward column of what people say
MOST_RANKED = 26  # answers of a group that a person can rank
SHA256 = r"^[0-9a-f]{64}$"
FINAL = "final"  # folder of the exported policy inside a run folder
NO_SHARDING = "none"
ACCELERATE = "accelerate"
PARALLEL_TRAINERS = frozenset({"grpo", "dpo", "kto", "sft", "reward"})  # what several processes can train together
TINY_CONTEXT = 256  # tokens that the built-in policy reads, prompt and answer together


class TinyPolicy(Strict):
    """The built-in policy: a 2-layer transformer of half a million parameters, built on first use and cached."""

    kind: Literal["tiny"] = "tiny"
    cold_start: bool = param(
        True,
        "Start from the policy after a supervised cold start on the task's demonstrations (of mixed quality by design)."
        " Without it the weights are random and RL gets no reward signal.",
        title="Cold-started",
    )


class HubPolicy(Strict):
    kind: Literal["hub"] = "hub"
    name: str = param(..., "Repository on the model hub, for example Qwen/Qwen2.5-0.5B-Instruct.", title="Hub id", pattern=HUB_ID)
    revision: str = param("main", "Branch, tag or commit.", advanced=True, min_length=1)


class FolderPolicy(Strict):
    kind: Literal["folder"] = "folder"
    path: str = param(..., "Folder with config.json, *.safetensors and a tokenizer.", title="Folder", min_length=1)


class RunPolicy(Strict):
    kind: Literal["run"] = "run"
    folder: str = param(..., "Folder of the run whose policy to start from.", title="Run", min_length=1)
    checkpoint: Literal["final"] | int = param(FINAL, "Final policy, or the step of a checkpoint.", title="Checkpoint")

    def path(self) -> Path:
        where = FINAL if self.checkpoint == FINAL else f"checkpoints/checkpoint-{self.checkpoint}"
        return Path(self.folder) / where


Policy = Annotated[TinyPolicy | HubPolicy | FolderPolicy | RunPolicy, Field(discriminator="kind")]


class Lora(Strict):
    """Low-rank adapters (arXiv 2106.09685) instead of all weights."""

    r: int = param(16, "Rank of the adapters.", title="Rank", ge=1, le=1024)
    alpha: int = param(32, "Scale of the adapters: alpha / rank.", title="Alpha", ge=1)
    dropout: float = param(0.0, "Dropout on the adapters' input.", title="Dropout", ge=0, lt=1)
    quantize: bool = param(
        False,
        "Keep the frozen weights in 4 bits (QLoRA, arXiv 2305.14314). Needs bitsandbytes and a CUDA GPU on the worker; what is exported has bf16"
        " weights with the adapters merged.",
        title="4-bit weights (QLoRA)",
    )
    target_modules: list[str] = param(["all-linear"], "Which layers get an adapter.", title="Layers", advanced=True, min_length=1)


class TaskFile(Strict):
    """A version of a task that was made in the browser (``contract/task_files.py``)."""

    path: str = param(..., "A .task.jsonl file.", title="File", min_length=1)
    sha256: str = param(..., "SHA-256 of the file; a file with a different hash is refused.", pattern=SHA256)


class TaskChoice(Strict):
    name: str = param(..., "A task of the catalogue, or with a file the task in it.", title="Task", min_length=1)
    file: TaskFile | None = None
    difficulty: str = param("easy", "One of the task's difficulty settings.", title="Difficulty")
    rewards: dict[str, float] = param({}, "Weights of the reward functions; functions not listed keep the task's weight.", title="Rewards")
    options: dict[str, Any] = param({}, "Options of a world, by name; those left out keep its defaults.", title="Options", advanced=True)

    @model_validator(mode="before")
    @classmethod
    def takes_all_rows(cls, given: Any) -> Any:
        """A file has one difficulty, which needs no mention."""
        if isinstance(given, dict) and given.get("file") is not None and "difficulty" not in given:
            return {**given, "difficulty": ALL_ROWS}
        return given


class DatasetChoice(Strict):
    """Rows of the run's own instead of the task's.

    Prompt-completion for SFT and GKD, preference pairs for DPO, ORPO, CPO and reward models, labelled completions for KTO, prompts for GRPO, RLOO and
    online DPO.
    """

    path: str = param(..., "A .jsonl or .parquet file in TRL's format for the trainer.", title="File", min_length=1)
    sha256: str | None = param(
        None, "SHA-256 of the file; a file with a different hash is refused. Set for frozen versions.", advanced=True, pattern=SHA256
    )


class HumanReward(Strict):
    """People rank some of the groups while the run waits; their ranking is one more reward. Nobody is waited for longer than the deadline."""

    share: float = param(0.1, "Share of groups that people are asked to rank, sampled by the seed.", title="Share of groups", gt=0, le=1)
    seconds: float = param(120, "How long a step waits for rankings.", title="Deadline", unit="seconds", ge=1, le=86_400)
    weight: float = param(1.0, "Weight of the human reward relative to the task's rewards.", title="Weight", ge=0, le=1000)
    fallback: float | None = param(
        None, "Reward of completions not ranked in time; empty: only the other rewards count.", title="Fallback", ge=0, le=1
    )
    compare: Literal["ranking"] = param(
        "ranking",
        "How rankings become a reward: the reward of a completion is the share of comparisons it wins.",
        title="Compare by",
        advanced=True,
    )


class MethodChoice(Strict):
    name: str = param(..., "A method of the catalogue.", min_length=1)
    config: dict[str, Any] = param({}, "Its parameters.")


class Evaluation(Strict):
    every: int = param(
        50,
        "Evaluate on held-out prompts every N steps, in addition to before and after training; 0: only before and after.",
        title="Evaluate every",
        unit="steps",
        ge=0,
    )
    prompts: int = param(256, "Number of held-out prompts; 0 disables evaluation.", title="Held-out prompts", ge=0, le=100_000)
    samples: int = param(
        1,
        "Answers to each held-out prompt. From 2 on the run also says how many prompts at least one of n answers solves, in how many tokens, and how "
        "its right answers are spread.",
        title="Answers per held-out prompt",
        advanced=True,
        ge=1,
        le=256,
    )
    temperature: float = param(1.0, "Sampling temperature for evaluation; 0 is greedy.", title="Temperature", advanced=True, ge=0, le=10)

    @model_validator(mode="after")
    def answers_differ(self) -> "Evaluation":
        if self.samples > 1 and self.temperature == 0:
            fix = "use a temperature above 0, or one answer"
            raise Contradiction(Problem("samples", self.samples, "all answers to a prompt are the same at temperature 0", fix))
        return self


class Limits(Strict):
    minutes: float | None = param(None, "Stop and save after this time.", title="Time limit", unit="minutes", gt=0)
    save_every: int = param(50, "Save a checkpoint every N steps; stopping and finishing always save one.", title="Save every", unit="steps", ge=1)
    keep_checkpoints: int = param(2, "Number of newest checkpoints to keep on disk.", title="Keep checkpoints", advanced=True, ge=1)


class Telemetry(Strict):
    """What is stored of a rollout's tokens besides the log-probability and the entropy of each."""

    alternatives_share: float = param(
        0.0,
        "Share of groups, and of held-out prompts, whose rollouts store the most likely tokens at every position. Groups are drawn by the seed;"
        " 0 stores none.",
        title="Share with alternatives",
        ge=0,
        le=1,
    )
    alternatives: int = param(
        5, "Most likely tokens stored at every position of those rollouts.", title="Alternatives per token", ge=1, le=MOST_ALTERNATIVES
    )
    sampler_logprobs: bool = param(
        False,
        "Store the log-probabilities computed while sampling next to the trainer's, to see where the two differ. With vLLM they are always stored.",
        title="Sampler log-probabilities",
    )


class Resources(Strict):
    """The processes that train a run together on one machine, each with a GPU of its own, or all on the CPU."""

    processes: int = param(
        1,
        "Processes that train together, each on a GPU of its own. A step takes so many times the per-device batch size.",
        title="Processes",
        ge=1,
        le=64,
    )
    sharding: Literal["none", "fsdp2", "accelerate"] = param(
        "none",
        "none: each process keeps all weights, gradients and optimiser states (DDP). fsdp2: each keeps its share of them (PyTorch FSDP2). "
        "accelerate: as the worker's accelerate configuration says (LAB_ACCELERATE_CONFIG; DeepSpeed, for example), which we have not tested.",
        title="Sharding",
        advanced=True,
    )


class RunSpec(Strict):
    version: Literal[1] = 1
    recipe: str = param("custom", "Name of the recipe this run was made from.", max_length=100)
    base: MethodChoice | None = param(None, "Base that the methods are stacked on; empty: the trainer's default (dapo, dpo, kto, sft).")
    methods: list[MethodChoice] = param([], "Methods stacked on the base, in order.")
    policy: Policy = TinyPolicy()
    teacher: Policy | None = param(None, "Policy whose distribution is learnt, with the same tokenizer; for gkd only.")
    lora: Lora | None = None
    task: TaskChoice
    dataset: DatasetChoice | None = None
    rewards: list[RewardColumn] = param([], "Reward functions besides the task's.", title="More rewards", max_length=MOST_REWARDS)
    human: HumanReward | None = None
    training: Annotated[SFT | GRPO | RLOO | DPO | KTO | ORPO | CPO | OnlineDPO | GKD | Reward | Procedure, Field(discriminator="trainer")]
    evaluation: Evaluation = Evaluation()
    limits: Limits = Limits()
    telemetry: Telemetry = Telemetry()
    resources: Resources = Resources()
    seed: int = param(0, "Seed for weights, data order and sampling.", title="Seed", ge=0, lt=2**31)
    device: Literal["auto", "cpu", "cuda"] = param("auto", "Device to train on; auto uses a GPU if available.", title="Device", advanced=True)
    precision: Literal["auto", "fp32", "bf16"] = param(
        "auto", "auto: bf16 on GPUs that support it, otherwise fp32.", title="Precision", advanced=True
    )
    attn_implementation: Literal["auto", "eager", "sdpa", "flash_attention_2"] = param(
        "auto",
        "How attention is computed; auto: transformers chooses, usually sdpa. flash_attention_2 needs flash-attn and bf16 on a GPU.",
        title="Attention",
        advanced=True,
    )
    use_liger_kernel: bool = param(
        False,
        "Layers computed by Liger's Triton kernels, which take less memory and time. Needs liger-kernel and a GPU.",
        title="Liger kernels",
        advanced=True,
    )
    output: str = param(..., "The run folder, which contains all output of the run.", min_length=1)

    @model_validator(mode="after")
    def parts_agree(self) -> "RunSpec":
        problems = []
        needed = self.training.prompts_per_batch(self.resources.processes) if isinstance(self.training, Rollouts) else 0
        if isinstance(self.training, Rollouts) and self.dataset is None and self.training.prompts < needed:
            message = f"fewer prompts than the {needed} of one generation batch"
            problems.append(Problem("training.prompts", self.training.prompts, message, f"use at least {needed}"))
        if isinstance(self.training, GroupRollouts) and self.training.uses_vllm and self.device == "cpu":
            message, fix = "vLLM generates on a GPU and the device is cpu", "use device cuda or auto, or generation transformers"
            problems.append(Problem("training.generation", self.training.generation, message, fix))
        names = [column.name for column in self.rewards]
        if repeated := next((name for name in names if names.count(name) > 1), None):
            problems.append(Problem("rewards", repeated, "two reward functions have this name", "rename one of them"))
        if self.lora is not None and self.lora.quantize and isinstance(self.training, Reward):
            message = "a reward model is exported with its own head, which adapters on 4-bit weights are not merged into"
            problems.append(Problem("lora.quantize", True, message, "turn 4-bit weights off"))
        if self.human is not None:
            problems += self._unasked()
        if isinstance(self.training, GKD) and self.teacher is None:
            problems.append(Problem("teacher", None, "distillation has a teacher", "choose the policy to learn from", given=False))
        elif self.teacher is not None and not isinstance(self.training, GKD):
            problems.append(Problem("teacher", self.teacher.kind, f"{self.training.trainer} has no teacher", "remove it, or train gkd"))
        if isinstance(self.training, Procedure) and self.lora is not None:
            problems.append(Problem("lora", "on", "a procedure changes no weights, those of adapters neither", "remove it"))
        problems += self._undivided()
        if problems:
            raise Contradiction(*problems)
        return self

    def _undivided(self) -> list[Problem]:
        """What keeps several processes from training this run."""
        count, name, sharding = self.resources.processes, self.training.trainer, self.resources.sharding
        if count == 1:
            message, fix = "one process has nobody to share weights with", "use 2 processes at least, or sharding none"
            return [Problem("resources.sharding", sharding, message, fix)] if sharding != NO_SHARDING else []
        problems = []
        if sharding != NO_SHARDING and self.lora is not None:
            message, fix = "adapters are trained with all weights in each process", "use sharding none, or train all weights"
            problems.append(Problem("resources.sharding", sharding, message, fix))
        if sharding != NO_SHARDING and self.device == "cpu":
            problems.append(Problem("resources.sharding", sharding, "weights are sharded over GPUs", "use device cuda or auto, or sharding none"))
        if name not in PARALLEL_TRAINERS:
            fix = f"use 1, or train {', '.join(sorted(PARALLEL_TRAINERS))}"
            problems.append(Problem("resources.processes", count, f"{name} trains in one process", fix))
        if self.lora is not None and self.lora.quantize:
            problems.append(Problem("resources.processes", count, "4-bit weights are trained in one process", "use 1, or turn 4-bit weights off"))
        return problems

    def _unasked(self) -> list[Problem]:
        """Why people cannot be asked about this run's groups."""
        if not isinstance(self.training, GroupRollouts):
            return [Problem("human.share", None, f"{self.training.trainer} samples no groups to ask people about", "train GRPO or RLOO", given=False)]
        size = self.training.num_generations
        if size > MOST_RANKED:
            message = f"a group of {size} answers is too long to rank"
            return [Problem("training.num_generations", size, message, f"use at most {MOST_RANKED}, or no human reward")]
        return []


def parse_spec(data: Any) -> RunSpec:
    """The spec in ``data`` (a decoded JSON object). Raises SpecError with every problem found."""
    unclean = refusals.find_unclean_values(data)
    if unclean:
        raise SpecError(unclean)
    try:
        return RunSpec.model_validate(data)
    except ValidationError as error:
        raise SpecError(refusals.problems_of(error, RunSpec)) from None


def read_spec(path: Path) -> RunSpec:
    """The spec in a file. Raises SpecError when the file is missing, is not JSON, or is not a spec."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise SpecError([Problem("", "", f"{path} cannot be read: {error.strerror}")]) from None
    return parse_spec(refusals.decode_strict_json(text, str(path)))
