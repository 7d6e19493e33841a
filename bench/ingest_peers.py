"""The rollouts of ``bench/ingest.py`` written into another tracker, as its users would: run by the interpreter of the peer's own environment.

``ingest_peers.py PEER SPOOL FOLDER`` reads the spool, and then, on the clock, logs a step after the other: its 20 metrics and its 64 rollouts with
prompt, completion, scores and token arrays. Lists are what a table of these trackers takes; floats are rounded to four digits, so that they are no
longer than they say. The last line printed is {"seconds", "bytes", "arrays"}.

- MLflow: metrics by ``log_metrics``, a step's rollouts as a Parquet file by ``log_artifact``, the fastest of its ways to keep arrays, on SQLite.
- Trackio: ``log`` of metrics and a ``Table``. W&B offline: the same.
- Aim: metrics by ``track``, prompts and completions as ``Text``, reward and length as metrics of the rollouts, arrays as a ``Distribution`` of
  64 bins: it has no place for the arrays themselves.
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

PROJECT = "bench"
Step = tuple[int, dict[str, float], list[dict[str, Any]]]  # step, metrics, rows


def main(peer: str, spool: Path, folder: Path) -> int:
    talk = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a tracker prints must not get between
    steps = list(read_steps(spool))
    seconds = WRITERS[peer](steps, folder, "bench")
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

    def unpack(packed: bytes | None) -> list[Any]:
        values: list[Any] = arrays.unpack_array(packed).tolist() if packed else []
        return values

    decoded = {
        "ids": unpack(event.ids),
        "logprobs": [round(value, 4) for value in unpack(event.logprobs)],
        "entropies": [round(value, 4) for value in unpack(event.entropies)],
    }
    place = {"step": event.step, "group": event.group, "sample": event.sample}
    scores = {**event.rewards, "reward": event.reward, "advantage": event.advantage, "mean_entropy": event.mean_entropy, "length": event.length}
    return {"prompt": event.prompt[-1].content, "completion": event.completion, **place, **scores, **decoded}


def write_mlflow(steps: list[Step], folder: Path, name: str) -> float:
    import mlflow
    import pandas

    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    if mlflow.get_experiment_by_name(PROJECT) is None:  # makes the tables: not counted
        mlflow.create_experiment(PROJECT, artifact_location=f"file://{folder}/artifacts")
    mlflow.set_experiment(PROJECT)
    start = time.perf_counter()
    with mlflow.start_run(run_name=name):
        for step, values, rows in steps:
            mlflow.log_metrics(values, step=step)
            if not rows:
                continue
            path = folder / f"rollouts-{step:05}.parquet"
            pandas.DataFrame(rows).to_parquet(path, compression="zstd")
            mlflow.log_artifact(str(path), "rollouts")
            path.unlink()
    return time.perf_counter() - start


def write_trackio(steps: list[Step], folder: Path, name: str) -> float:
    import pandas
    import trackio

    start = time.perf_counter()
    trackio.init(project=PROJECT, name=name, auto_log_gpu=False, auto_log_cpu=False)
    for _, values, rows in steps:
        trackio.log({**values, **({"rollouts": trackio.Table(dataframe=pandas.DataFrame(rows))} if rows else {})})
    trackio.finish()
    return time.perf_counter() - start


def write_wandb(steps: list[Step], folder: Path, name: str) -> float:
    import pandas
    import wandb

    start = time.perf_counter()
    run = wandb.init(project=PROJECT, name=name, dir=str(folder))
    for step, values, rows in steps:
        run.log({**values, "rollouts": wandb.Table(dataframe=pandas.DataFrame(rows))}, step=step)
    run.finish()
    return time.perf_counter() - start


def write_aim(steps: list[Step], folder: Path, name: str) -> float:
    import aim

    start = time.perf_counter()
    run = aim.Run(repo=aim.Repo.from_path(str(folder), init=True), system_tracking_interval=None, log_system_params=False)
    run.name = name
    for step, values, rows in steps:
        for metric, value in values.items():
            run.track(value, name=metric, step=step)
        for text in ("prompt", "completion") if rows else ():
            run.track([aim.Text(row[text]) for row in rows], name=text, step=step)
        for place, row in enumerate(rows):
            for score in ("reward", "length"):
                run.track(row[score], name=f"rollout_{score}", step=step * len(rows) + place)
            for array in ("logprobs", "entropies") if row["logprobs"] else ():
                run.track(aim.Distribution(row[array], bin_count=64), name=array, step=step * len(rows) + place)
    run.close()
    return time.perf_counter() - start


WRITERS: dict[str, Callable[[list[Step], Path, str], float]] = {
    "mlflow": write_mlflow,
    "trackio": write_trackio,
    "wandb": write_wandb,
    "aim": write_aim,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
