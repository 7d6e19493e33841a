"""The questions of ``bench/trajectories.py`` asked of another tracker that holds the same rollouts: run by the interpreter of the peer's environment.

``peer_answers.py PEER FOLDER QUESTIONS``: writes the spools into the peer (``bench/ingest_peers.py``), each a run of its own, and then answers the
questions by the peer's own client, as a user who knows it would; the last line printed has seconds and "right" of each. Right is what the spools say.

- MLflow: a run's Parquet files through ``MlflowClient``, read with the filters and columns that the question needs; curves by ``get_metric_history``.
- Trackio: ``get_logs`` of a run, what its page and its command line read, tables included; it keeps what it read until something is written.
- Aim: ``query_metrics`` and ``query_texts``. It has no advantages and no groups; texts lie by step, so that filters look at numbers first.

Nothing is kept between two questions but what the client itself keeps.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.ingest_peers import PROJECT, WRITERS, Step, read_steps

PAGE = 50  # rollouts that a list shows
BINS = 30
NUMBERS = ["step", "group", "sample", "reward", "length"]
COLUMNS = [*NUMBERS, "prompt", "completion"]
Where = list[tuple[str, str, Any]]  # column, operator (of >=, <=, ==), value: all of them hold


class Tracker(Protocol):
    def list_runs(self) -> list[str]: ...

    def read_rows(self, run: str, where: Where, columns: list[str]) -> Any:
        """A data frame with the columns; rows that ``where`` leaves out may still be in it."""

    def read_curves(self, run: str) -> dict[str, int]:
        """Points by metric, once all of them have been read."""


def main(peer: str, folder: Path, questions: Path) -> int:
    talk = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a tracker prints must not get between
    asked = json.loads(questions.read_text())
    runs = {name: list(read_steps(Path(path))) for name, path in asked["spools"].items()}
    writing = sum(WRITERS[peer](steps, folder, name) for name, steps in runs.items())
    tracker, truth = TRACKERS[peer](folder), Spools(runs)
    told = [ask(tracker, truth, question) for question in asked["questions"]]
    print(json.dumps({"writing_s": round(writing, 2), "answers": told}), file=talk, flush=True)
    return 0


def ask(tracker: Tracker, truth: Tracker, question: dict[str, Any]) -> dict[str, Any]:
    start = time.perf_counter()
    answer = ANSWERS[question["kind"]](tracker, question)
    seconds = time.perf_counter() - start
    return {"view": question["view"], "seconds": seconds, "right": answer == ANSWERS[question["kind"]](truth, question)}


def answer_list(tracker: Tracker, question: dict[str, Any]) -> Any:
    """How many rollouts match, and of the page's the score they are sorted by and the text."""
    import pandas

    where, word = [tuple(one) for one in question["where"]], question.get("word")
    names = [question["run"]] if question["run"] else tracker.list_runs()
    found = pandas.concat(keep(tracker.read_rows(name, where, COLUMNS), where).assign(run=int(name)) for name in names)
    if word:
        found = found[found["completion"].str.contains(rf"\b{word}\b", regex=True)]
    order = question["sort"]
    shown = found.sort_values([order, "run", "step", "group", "sample"], ascending=False, kind="stable").head(PAGE)
    return len(found), [round(float(value), 9) for value in shown[order]], shown["completion"].tolist()


def answer_group(tracker: Tracker, question: dict[str, Any]) -> Any:
    where: Where = [("step", "==", question["step"]), ("group", "==", question["group"])]
    return sorted(keep(tracker.read_rows(question["run"], where, COLUMNS), where)["completion"])


def answer_prompt(tracker: Tracker, question: dict[str, Any]) -> Any:
    """The rewards of one prompt's rollouts in all runs."""
    where: Where = [("prompt", "==", question["prompt"])]
    found = [keep(tracker.read_rows(name, where, [*NUMBERS, "prompt"]), where)["reward"].tolist() for name in tracker.list_runs()]
    return sorted(round(float(value), 9) for run in found for value in run)


def answer_histogram(tracker: Tracker, question: dict[str, Any]) -> Any:
    import numpy

    where = [tuple(one) for one in question["where"]]
    found = keep(tracker.read_rows(question["run"], where, ["reward", "length"]), where)
    return [numpy.histogram(found[name].astype(float), bins=BINS)[0].tolist() for name in ("reward", "length")]


def answer_curves(tracker: Tracker, question: dict[str, Any]) -> Any:
    return tracker.read_curves(question["run"])


ANSWERS = {"list": answer_list, "group": answer_group, "prompt": answer_prompt, "histogram": answer_histogram, "curves": answer_curves}


def keep(rows: Any, where: Where) -> Any:
    for column, operator, value in where:
        held = rows[column]
        rows = rows[held >= value if operator == ">=" else held <= value if operator == "<=" else held == value]
    return rows


class Spools:
    """What was written: the truth."""

    def __init__(self, runs: dict[str, list[Step]]) -> None:
        self.runs = runs

    def list_runs(self) -> list[str]:
        return [name for name, steps in self.runs.items() if steps[0][2]]

    def read_rows(self, run: str, where: Where, columns: list[str]) -> Any:
        import pandas

        return pandas.DataFrame([{name: row[name] for name in columns} for _, _, rows in self.runs[run] for row in rows])

    def read_curves(self, run: str) -> dict[str, int]:
        steps = self.runs[run]
        return {name: sum(name in values for _, values, _ in steps) for name in steps[0][1]}


class MLflow:
    def __init__(self, folder: Path) -> None:
        import mlflow

        self.client = mlflow.MlflowClient()
        self.experiment = self.client.get_experiment_by_name(PROJECT).experiment_id

    def list_runs(self) -> list[str]:
        found = self.client.search_runs([self.experiment])
        return [run.info.run_name for run in found if self.client.list_artifacts(run.info.run_id, "rollouts")]

    def find(self, run: str) -> str:
        return str(self.client.search_runs([self.experiment], f"attributes.run_name = '{run}'")[0].info.run_id)

    def read_rows(self, run: str, where: Where, columns: list[str]) -> Any:
        import pandas

        folder = self.client.download_artifacts(self.find(run), "rollouts")
        return pandas.read_parquet(folder, columns=columns, filters=where or None)

    def read_curves(self, run: str) -> dict[str, int]:
        key = self.find(run)
        return {name: len(self.client.get_metric_history(key, name)) for name in self.client.get_run(key).data.metrics}


class Trackio:
    def __init__(self, folder: Path) -> None:
        from trackio.sqlite_storage import SQLiteStorage

        self.storage = SQLiteStorage

    def list_runs(self) -> list[str]:
        return [run for run in self.storage.get_runs(PROJECT) if "rollouts" in self.storage.get_logs(PROJECT, run, max_points=1)[0]]

    def read_rows(self, run: str, where: Where, columns: list[str]) -> Any:
        import pandas

        logs = self.storage.get_logs(PROJECT, run)
        return pandas.DataFrame([{name: row[name] for name in columns} for log in logs for row in log["rollouts"]["_value"]])

    def read_curves(self, run: str) -> dict[str, int]:
        counts: dict[str, int] = {}
        for log in self.storage.get_logs(PROJECT, run, scalar_only=True):
            for name in log.keys() - {"step", "timestamp"}:
                counts[name] = counts.get(name, 0) + 1
        return counts


class Aim:
    def __init__(self, folder: Path) -> None:
        import aim
        from aim.sdk.index_manager import RepoIndexManager

        self.repo = aim.Repo(str(folder))
        manager = RepoIndexManager.get_index_manager(self.repo)
        for run in self.repo.list_all_runs():
            manager.index(run)  # what the process of ``aim up`` does beside the runs: queries find nothing before

    def list_runs(self) -> list[str]:
        found = self.repo.query_metrics("metric.name == 'rollout_reward'", report_mode=0)
        return [sequence.run.name for sequence in found]

    def read_rows(self, run: str, where: Where, columns: list[str]) -> Any:
        """Group and place follow from the place in the step, which has as many rollouts as its list of completions."""
        import pandas

        numbers = {name: self.read_numbers(run, f"rollout_{name}")[1] for name in ("reward", "length")}
        size = len(self.read_texts(run, "completion", None, 1)[0][1])
        places = range(len(numbers["reward"]))
        rows = pandas.DataFrame(
            {"step": [1 + at // size for at in places], "group": [at % size // 8 for at in places], "sample": [at % 8 for at in places], **numbers}
        )
        rows["at"] = [at % size for at in places]
        rows = keep(rows, [one for one in where if one[0] != "prompt"])
        steps = set(rows["step"])
        for text in ("prompt", "completion"):
            if text in columns:
                held = dict(self.read_texts(run, text, steps, None))
                rows[text] = [held[step][at] for step, at in zip(rows["step"], rows["at"], strict=True)]
        return rows

    def read_numbers(self, run: str, name: str) -> tuple[list[int], list[float]]:
        sequence = next(iter(self.repo.query_metrics(f"run.name == '{run}' and metric.name == '{name}'", report_mode=0)))
        steps, (values, *_) = sequence.data.numpy()
        return steps.tolist(), values.tolist()

    def read_texts(self, run: str, name: str, steps: set[int] | None, most: int | None) -> list[tuple[int, list[str]]]:
        sequence = next(iter(self.repo.query_texts(f"run.name == '{run}' and texts.name == '{name}'", report_mode=0)))
        data = sequence.data.view("val")
        if most is not None:
            data = data.range(0, most + 1)
        elif steps is not None and len(steps) == 1:
            data = data.range(min(steps), min(steps) + 1)
        found = []
        for step, (value, *_) in data.items():
            if steps is None or step in steps:
                found.append((step, [text.data for text in value]))
        return found

    def read_curves(self, run: str) -> dict[str, int]:
        sequences = self.repo.query_metrics(f"run.name == '{run}'", report_mode=0)
        return {sequence.name: len(sequence.data.numpy()[0]) for sequence in sequences if not sequence.name.startswith("rollout_")}


TRACKERS: dict[str, Any] = {"mlflow": MLflow, "trackio": Trackio, "aim": Aim}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
