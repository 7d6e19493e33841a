"""Recipes for one's own model: Qwen3 of four sizes on one GPU of three, GRPO on math problems, and SFT then DPO on preference pairs.

What is trained (everything, LoRA or QLoRA), how many sequences a forward pass has and whether activations are recomputed is chosen so that the whole
estimate (``trainers/checks/model_memory.py``) is within the GPU; ``tests/trainers/test_model_recipes.py`` holds every combination to it. Learning
rates are those of ``trainers/checks/model_settings.py``. Nothing here was measured on a GPU.
"""

from dataclasses import dataclass
from typing import Any

from trainers.contract.recipe_parts import Recipe, RecipeStage

GRPO_FAMILY, PAIRS_FAMILY = "GRPO on math problems", "SFT, then DPO on preference pairs"
GPUS = (24, 80, 141)  # GB
COMPLETIONS, PAIRS = 64, 32  # of an optimiser step
ADAPTERS: dict[str, dict[str, Any] | None] = {"full": None, "LoRA": {"r": 16, "alpha": 32}, "QLoRA": {"r": 16, "alpha": 32, "quantize": True}}
BOXED = r"(?:\\boxed\{|<answer>)([^{}<]*)"  # where models write a number that they were asked for, and where the built-in tasks' answers stand
MATH_REWARD = [
    {
        "name": "math-verify",
        "definition": {"kind": "library", "function": "math-verify", "config": {"answer": "pattern", "answer_pattern": BOXED}},
    }
]
RATES = {"grpo": (1e-6, 1e-5), "sft": (2e-5, 2e-4), "dpo": (1e-6, 1e-5)}  # of full training, of adapters


@dataclass(frozen=True)
class HubModel:
    key: str
    title: str
    name: str


@dataclass(frozen=True)
class Fit:
    """``how``: a key of ADAPTERS; ``batch``: sequences (pairs) of a forward pass; ``recompute``: gradient checkpointing."""

    how: str
    batch: int
    recompute: bool = True


MODELS = (
    HubModel("600m", "Qwen3 0.6B", "Qwen/Qwen3-0.6B"),
    HubModel("1700m", "Qwen3 1.7B", "Qwen/Qwen3-1.7B"),
    HubModel("4b", "Qwen3 4B", "Qwen/Qwen3-4B"),
    HubModel("8b", "Qwen3 8B", "Qwen/Qwen3-8B"),
)
GRPO_FITS = {  # a model's fits on the GPUs
    "600m": (Fit("full", 8), Fit("full", 16, False), Fit("full", 16, False)),
    "1700m": (Fit("LoRA", 16), Fit("full", 8, False), Fit("full", 16, False)),
    "4b": (Fit("LoRA", 16), Fit("LoRA", 16), Fit("full", 16)),
    "8b": (Fit("QLoRA", 8), Fit("LoRA", 16), Fit("LoRA", 16)),
}
PAIR_FITS = {
    "600m": (Fit("full", 8), Fit("full", 8, False), Fit("full", 16, False)),
    "1700m": (Fit("LoRA", 8), Fit("full", 8), Fit("full", 8, False)),
    "4b": (Fit("LoRA", 8), Fit("LoRA", 16), Fit("full", 8)),
    "8b": (Fit("QLoRA", 4), Fit("LoRA", 16), Fit("LoRA", 16)),
}


def build_math_recipe(model: HubModel, gpu: int, fit: Fit) -> Recipe:
    """Problems with a checkable answer, from a file in GSM8K's form (prompt, reference) or the task's own, compared as mathematics."""
    training = build_training("grpo", fit, COMPLETIONS) | {"max_steps": 200, "num_generations": 8, "max_completion_length": 512}
    summary = "RL on the base DAPO; math-verify checks the last \\boxed{} or <answer>. Choose a file with prompt and reference, as GSM8K has."
    stages = (build_stage("GRPO", model, fit, training, MATH_REWARD),)
    return make_recipe("math", f"{GRPO_FAMILY}: {model.title} on {gpu} GB", summary, stages, GRPO_FAMILY, model, gpu, fit)


def build_pairs_recipe(model: HubModel, gpu: int, fit: Fit) -> Recipe:
    """One file of pairs in UltraFeedback's form (prompt, chosen, rejected) for both stages: SFT learns the chosen answers."""
    first = build_training("sft", fit, PAIRS) | {"max_steps": 300, "max_length": 1024}
    second = build_training("dpo", fit, PAIRS) | {"max_steps": 300, "max_length": 1024, "max_completion_length": 512, "lr_scheduler_type": "linear"}
    stages = (build_stage("SFT on chosen answers", model, fit, first), build_stage("DPO", None, fit, second))
    summary = "Both stages read one file with prompt, chosen and rejected, as UltraFeedback has; SFT learns the chosen answers."
    return make_recipe("pairs", f"{PAIRS_FAMILY}: {model.title} on {gpu} GB", summary, stages, PAIRS_FAMILY, model, gpu, fit)


def make_recipe(kind: str, title: str, summary: str, stages: tuple[RecipeStage, ...], family: str, model: HubModel, gpu: int, fit: Fit) -> Recipe:
    return Recipe(f"{kind}-{model.key}-{gpu}gb", title, summary, 0, stages, "gpu", family, model.title, gpu, fit.how)


def build_training(trainer: str, fit: Fit, sequences: int) -> dict[str, Any]:
    return {
        "trainer": trainer,
        "learning_rate": RATES[trainer][fit.how != "full"],
        "per_device_train_batch_size": fit.batch,
        "gradient_accumulation_steps": sequences // fit.batch,
        "gradient_checkpointing": fit.recompute,
    }


def build_stage(title: str, model: HubModel | None, fit: Fit, training: dict[str, Any], rewards: list[dict[str, Any]] | None = None) -> RecipeStage:
    """Without ``model`` it goes on from the stage before. ``rewards``: columns that count in place of the task's own."""
    policy = {"policy": {"kind": "hub", "name": model.name}} if model else {}
    lora = {"lora": ADAPTERS[fit.how]} if ADAPTERS[fit.how] else {}
    task: dict[str, Any] = {"name": "mini_gsm", "difficulty": "hard"}
    scored = {"task": task | {"rewards": {"correct": 0.0}}, "rewards": rewards} if rewards else {"task": task}
    machine = {"device": "cuda", "precision": "bf16", "evaluation": {"prompts": 64}}
    return RecipeStage(title, {**policy, **lora, **scored, "training": training, **machine})


MODEL_RECIPES = (
    *(build_math_recipe(model, gpu, fit) for model in MODELS for gpu, fit in zip(GPUS, GRPO_FITS[model.key], strict=True)),
    *(build_pairs_recipe(model, gpu, fit) for model in MODELS for gpu, fit in zip(GPUS, PAIR_FITS[model.key], strict=True)),
)
