"""What a researcher's own TRL script looks like; it knows nothing of the lab."""

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from trainers.policies import tiny


def longer_is_better(completions: list[Any], **rest: Any) -> list[float]:
    return [len(one[-1]["content"]) / 100 for one in completions]


def grpo_trainer(output: Path, steps: int) -> GRPOTrainer:
    """Two prompts with four completions each, in every step."""
    from datasets import Dataset

    policy = str(tiny.ensure_untrained_policy())
    rows = Dataset.from_list([{"prompt": [{"role": "user", "content": f"count to {number}"}]} for number in range(8)])
    settings = GRPOConfig(
        output_dir=str(output),
        max_steps=steps,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=16,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        bf16=False,
        gradient_checkpointing=False,
        use_cpu=True,
        learning_rate=1e-4,
    )
    return GRPOTrainer(
        model=policy, processing_class=AutoTokenizer.from_pretrained(policy), reward_funcs=[longer_is_better], args=settings, train_dataset=rows
    )
