"""Writes the files in ``fixtures/`` with the frameworks' own code. Not run by the tests; each function says what it needs installed.

python -m tests.trainers.outside_readers.make_fixtures trl torch           in the lab's environment (TRL 1.16.0, torch)
python tests/trainers/outside_readers/make_fixtures.py tensorboard wandb   in one of its own, with the package that a function names
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parent / "fixtures"
CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 3, "b": 4}}}
OTHER = {"type": "function", "function": {"name": "look_up", "arguments": {"page": "sums"}}}
ASKED = [{"role": "system", "content": "You solve sums."}, {"role": "user", "content": "What is 3 + 4?"}]


def write_trl() -> None:
    """``GRPOTrainer.log`` on completions put in place of sampled ones: two of a group with calls of tools, a third column by ``log_extra``."""
    from tests.lab.outside.script import grpo_trainer

    with tempfile.TemporaryDirectory() as folder:
        trainer = grpo_trainer(Path(folder), 1)
        trainer.log_completions, trainer.state.global_step = True, 12
        os.makedirs(f"{folder}/completions")
        answers: list[Any] = [
            [
                {"role": "assistant", "content": "", "tool_calls": [CALL]},
                {"role": "tool", "name": "add", "content": "7"},
                {"role": "assistant", "content": "<answer>7</answer>"},
            ],
            [{"role": "assistant", "content": "", "tool_calls": [OTHER]}, {"role": "tool", "name": "look_up", "content": "no such page"}],
        ]
        trainer._logs["prompt"].extend([ASKED, ASKED])
        trainer._logs["completion"].extend(answers)
        trainer._logs["rewards"]["correct"].extend([1.0, 0.0])
        trainer._logs["rewards"]["brief"].extend([0.5, float("nan")])
        trainer._logs["extra"]["note"].extend(["fine", "lost"])
        trainer._logs["advantages"].extend([0.7071, -0.7071])
        trainer.log({})
        keep(Path(folder) / "completions" / "completions_00012.parquet", "trl/completions/completions_00012.parquet")


def write_torch() -> None:
    """``torch.save`` of what ``save_debug_rollout_data`` of slime saves: ``Sample.to_dict`` of two samples, with tensors where it may have them."""
    import torch

    def sample(index: int, response: str, reward: Any, status: str, **more: Any) -> dict[str, Any]:
        base = {"group_index": 0, "index": index, "rollout_id": None, "prompt": ASKED, "label": "7", "response": response, "reward": reward}
        counted = {"tokens": [5, 6, 7, 8 + index, 9], "response_length": 2, "loss_mask": [1, 1], "rollout_log_probs": [-0.5, -0.25 - index]}
        rest = {"status": status, "remove_sample": False, "metadata": {}, "rollout_top_p_token_ids": torch.arange(4, dtype=torch.int32)}
        return {**base, **counted, **rest, "spec_info": {"completion_token_num": 0}, **more}

    path = FIXTURES / "slime" / "rollout_data" / "3.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = [sample(0, "7<|im_end|>", 1.0, "completed"), sample(1, "eight", {"score": 0.0, "format": 1.0}, "truncated", remove_sample=True)]
    torch.save({"rollout_id": 3, "samples": samples}, path)


def write_tensorboard() -> None:
    """``tensorboardX`` 2.6.5: scalars, and the text that OpenRLHF adds, by the call that OpenRLHF makes."""
    from tensorboardX import SummaryWriter

    with tempfile.TemporaryDirectory() as folder:
        writer = SummaryWriter(folder)
        for step in (1, 2, 3):
            writer.add_scalar("train/reward", 0.25 * step, step)
            writer.add_scalar("train/policy_loss", 1.0 / step, step)
            text = f"system\nYou solve sums.\nuser\nWhat is {step} + 4?\nassistant\n<answer>{step + 4}</answer>"
            writer.add_text("train/generated_samples", f"Sample:\\n{text}\\n\\nReward: {0.5 * step:.4f}", step)
        writer.close()
        [written] = Path(folder).glob("events.out.tfevents.*")
        keep(written, "tensorboard/events.out.tfevents.1700000000.host")


def write_wandb() -> None:
    """``wandb`` 0.31.0 offline: a config, four steps, a table as OpenRLHF logs it, and the end."""
    os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DISABLE_GIT": "true", "WANDB_DISABLE_CODE": "true"}
    import wandb

    with tempfile.TemporaryDirectory() as folder:
        settings = wandb.Settings(
            x_disable_stats=True, x_disable_meta=True, x_disable_machine_info=True, console="off", host="host", program="train.py"
        )
        config = {"model": "Qwen/Qwen3-0.6B", "max_steps": 4}
        run = wandb.init(project="sums", name="sums-grpo", dir=folder, config=config, settings=settings)
        for step in range(1, 5):
            run.log({"train/reward": 0.25 * step, "train/loss": 1.0 / step, "train/global_step": step}, step=step)
        run.finish()
        time.sleep(2)  # its service writes the rest
        [written] = Path(folder).glob("wandb/offline-run-*/run-*.wandb")
        keep(written, "wandb/offline-run-20240101_000000-abcd1234/run-abcd1234.wandb")


def write_trackio() -> None:
    """``trackio`` 0.43.0: a run of three steps with a config."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRACKIO_DIR"] = folder
        import trackio

        trackio.init(project="sums", name="sums-grpo", config={"model": "Qwen/Qwen3-0.6B"}, embed=False, auto_log_gpu=False)
        for step in (1, 2, 3):
            trackio.log({"train/reward": 0.25 * step, "train/loss": 1.0 / step}, step=step)
        trackio.finish()
        compact(Path(folder) / "sums.db", "trackio/sums.db")


def write_mlflow() -> None:
    """``mlflow-skinny`` 3.17.2: one store in SQLite and one of files, each with a run of three steps."""
    import mlflow

    with tempfile.TemporaryDirectory() as folder:
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
        for uri in (f"sqlite:///{folder}/mlflow.db", f"file://{folder}/mlruns"):
            mlflow.set_tracking_uri(uri)
            mlflow.set_experiment("sums")
            with mlflow.start_run(run_name="sums-grpo"):
                mlflow.log_params({"model": "Qwen/Qwen3-0.6B", "max_steps": 3})
                for step in (1, 2, 3):
                    mlflow.log_metrics({"train/reward": 0.25 * step, "train/loss": 1.0 / step}, step=step)
        compact(
            Path(folder) / "mlflow.db",
            "mlflow/mlflow.db",
            "UPDATE runs SET artifact_uri = '', user_id = ''",
            "UPDATE experiments SET artifact_location = ''",
        )
        target = FIXTURES / "mlflow" / "mlruns"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(Path(folder) / "mlruns", target, ignore=shutil.ignore_patterns("tags"))  # they name the machine
        for meta in target.rglob("meta.yaml"):
            kept_lines = [line for line in meta.read_text().splitlines() if not line.startswith(("artifact_", "user_id"))]
            meta.write_text("\n".join(kept_lines) + "\n")


def keep(written: Path, name: str) -> None:
    (FIXTURES / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(written, FIXTURES / name)


def compact(database: Path, name: str, *changes: str) -> None:
    """A copy with nothing in it but the tables that a reader reads, so that it stays small; ``changes`` take out what names a machine."""
    import sqlite3

    target = FIXTURES / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    read = ("metrics", "configs", "runs", "experiments", "params", "alembic_version")
    with sqlite3.connect(database) as source, sqlite3.connect(target) as copy:
        source.backup(copy)
        copy.execute("PRAGMA foreign_keys = OFF")
        for kind, own, table in copy.execute("SELECT type, name, tbl_name FROM sqlite_master").fetchall():
            if table not in read and not own.startswith("sqlite_") and kind == "table":
                copy.execute(f'DROP TABLE IF EXISTS "{own}"')
        for change in changes:
            copy.execute(change)
        copy.commit()
        copy.execute("PRAGMA page_size = 1024")
        copy.execute("PRAGMA journal_mode = DELETE")
        copy.execute("VACUUM")


if __name__ == "__main__":
    for asked in sys.argv[1:]:
        globals()[f"write_{asked}"]()
