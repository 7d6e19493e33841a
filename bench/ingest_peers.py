"""The rollouts of ``bench/ingest.py`` written into another tracker, as its users would: run by the interpreter of the peer's own environment.

``ingest_peers.py PEER SPOOL FOLDER`` reads the spool, and then, on the clock, logs a step after the other: its 20 metrics and its 64 rollouts with
prompt, completion, scores and token arrays. Lists are what a table of these trackers takes; floats are rounded to four digits, so that they are no
longer than they say. The last line printed is {"seconds", "bytes", "arrays"}.

- MLflow: metrics by ``log_metrics``, a step's rollouts as a Parquet file by ``log_artifact``, the fastest of its ways to keep arrays, on SQLite.
- Trackio: ``log`` of metrics and a ``Table``. W&B offline: the same.
- Aim: metrics by ``track``, completions as ``Text``, arrays as a ``Distribution`` of 64 bins: it has no place for the arrays themselves.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

Step = tuple[int, dict[str, float], list[dict[str, Any]]]  # step, metrics, rows


def main(peer: str, spool: Path, folder: Path) -> int:
    talk = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a tracker prints must not get between
    steps = list(read_steps(spool))
    seconds = WRITERS[peer](steps, folder)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(json.dumps({"seconds": seconds, "bytes": size, "arrays": peer != "aim"}), file=talk, flush=True)
    return 0


def read_steps(path: Path) -> Iterator[Step]:
    from trainers.contract import spool
    from trainers.contract.events import Metrics, Rollout

    rows: list[dict[str, Any]] = []
    for line in spool.read_spool_lines(path, 0, limit=1 << 40):
        if isinstance(line.event, Rollout):
            rows.append(make_row(line.event))
        elif isinstance(line.event, Metrics):
            yield line.event.step, line.event.values, rows
            rows = []


def make_row(event: Any) -> dict[str, Any]:
    from trainers.contract import arrays

    decoded = {
        "ids": arrays.unpack_array(event.ids).tolist(),
        "logprobs": [round(value, 4) for value in arrays.unpack_array(event.logprobs).tolist()],
        "entropies": [round(value, 4) for value in arrays.unpack_array(event.entropies).tolist()],
    }
    texts = {"prompt": event.prompt[-1].content, "completion": event.completion, "group": event.group, "sample": event.sample}
    return {**texts, **event.rewards, "reward": event.reward, "advantage": event.advantage, "mean_entropy": event.mean_entropy, **decoded}


def write_mlflow(steps: list[Step], folder: Path) -> float:
    import mlflow
    import pandas

    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    experiment = mlflow.create_experiment("bench", artifact_location=f"file://{folder}/artifacts")  # makes the tables: not counted
    start = time.perf_counter()
    with mlflow.start_run(experiment_id=experiment):
        for step, values, rows in steps:
            mlflow.log_metrics(values, step=step)
            path = folder / f"rollouts-{step:05}.parquet"
            pandas.DataFrame(rows).to_parquet(path, compression="zstd")
            mlflow.log_artifact(str(path), "rollouts")
            path.unlink()
    return time.perf_counter() - start


def write_trackio(steps: list[Step], folder: Path) -> float:
    import pandas
    import trackio

    start = time.perf_counter()
    trackio.init(project="bench", auto_log_gpu=False, auto_log_cpu=False)
    for _, values, rows in steps:
        trackio.log({**values, "rollouts": trackio.Table(dataframe=pandas.DataFrame(rows))})
    trackio.finish()
    return time.perf_counter() - start


def write_wandb(steps: list[Step], folder: Path) -> float:
    import pandas
    import wandb

    start = time.perf_counter()
    run = wandb.init(project="bench", dir=str(folder))
    for step, values, rows in steps:
        run.log({**values, "rollouts": wandb.Table(dataframe=pandas.DataFrame(rows))}, step=step)
    run.finish()
    return time.perf_counter() - start


def write_aim(steps: list[Step], folder: Path) -> float:
    import aim

    start = time.perf_counter()
    run = aim.Run(repo=aim.Repo.from_path(str(folder), init=True), system_tracking_interval=None, log_system_params=False)
    for step, values, rows in steps:
        for name, value in values.items():
            run.track(value, name=name, step=step)
        run.track([aim.Text(row["completion"]) for row in rows], name="completion", step=step)
        for place, row in enumerate(rows):
            run.track(row["reward"], name="rollout_reward", step=step * len(rows) + place)
            run.track(aim.Distribution(row["logprobs"], bin_count=64), name="logprobs", step=step * len(rows) + place)
            run.track(aim.Distribution(row["entropies"], bin_count=64), name="entropies", step=step * len(rows) + place)
    run.close()
    return time.perf_counter() - start


WRITERS: dict[str, Callable[[list[Step], Path], float]] = {"mlflow": write_mlflow, "trackio": write_trackio, "wandb": write_wandb, "aim": write_aim}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
