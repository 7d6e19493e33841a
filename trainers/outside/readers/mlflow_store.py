"""MLflow's stores: a database in SQLite (``mlflow.db``), or files (``mlruns/<experiment>/<run>``).

Read from mlflow 3.17.2, ``mlflow/store/tracking/dbmodels/models.py`` (tables ``runs``, ``params``, ``metrics`` with key, value, timestamp in ms,
step, is_nan) and ``mlflow/store/tracking/file_store.py`` (``meta.yaml`` with the run's status as a number, ``params/<name>``, and ``metrics/<name>``
with lines of timestamp in ms, value and step). A run's status says when it has ended.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from trainers.contract.events import Warned
from trainers.outside.readers.base import Item, ReaderOptions, RunReader, SourceError, SourceFormat, SourceOpening, list_folder
from trainers.outside.readers.json_lines import read_raw_lines
from trainers.outside.readers.metric_rows import StepMerger
from trainers.outside.readers.source_config import pick_plain_settings
from trainers.outside.readers.sqlite_stores import choose_stored_run, has_tables, open_read_only

ROWS = 20_000  # read at once
OUTCOMES: dict[str, Literal["finished", "failed", "stopped"]] = {"FINISHED": "finished", "FAILED": "failed", "KILLED": "stopped"}
OUTCOMES |= {"3": "finished", "4": "failed", "5": "stopped"}  # the numbers of mlflow/protos/service.proto
POLICY_NAMES = ("model", "model_name_or_path", "_name_or_path")


def find_mlflow_database(path: Path) -> Path | None:
    files = [path] if path.is_file() else [file for file in list_folder(path) if file.suffix in (".db", ".sqlite")]
    return next((file for file in files if has_tables(file, ("runs", "metrics", "experiments"))), None)


def list_mlflow_folders(path: Path) -> list[Path]:
    """Folders of runs: the path itself, or those two below it or below ``mlruns``."""
    if (path / "metrics").is_dir() and (path / "meta.yaml").is_file():
        return [path]
    experiments = [one for place in (path, path / "mlruns") for one in list_folder(place) if one.is_dir() and not one.name.startswith(".")]
    return [run for one in experiments for run in list_folder(one) if (run / "metrics").is_dir() and (run / "meta.yaml").is_file()]


def recognize_mlflow_store(path: Path) -> bool:
    return find_mlflow_database(path) is not None or bool(path.is_dir() and list_mlflow_folders(path))


def open_mlflow_store(path: Path, position: dict[str, Any], options: ReaderOptions) -> RunReader:
    database = find_mlflow_database(path)
    return MlflowFilesReader(path, position, options) if database is None else MlflowDatabaseReader(database, position, options)


def build_opening(name: str, params: dict[str, Any], store: Path) -> SourceOpening:
    steps = str(params.get("max_steps", ""))
    policy = next((str(params[one]) for one in POLICY_NAMES if params.get(one)), "")
    return SourceOpening(
        name=name, policy=policy, total_steps=int(steps) if steps.isdecimal() else 0, config=pick_plain_settings(params) | {"store": str(store)}
    )


class MlflowDatabaseReader(RunReader):
    brings_metrics = True

    def __init__(self, path: Path, position: dict[str, Any], options: ReaderOptions) -> None:
        super().__init__(path, position, options)
        position.setdefault("row", 0)
        with open_read_only(path) as connection:
            runs = connection.execute("SELECT run_uuid, name FROM runs WHERE lifecycle_stage = 'active' ORDER BY start_time").fetchall()
            self.run = choose_stored_run(path, [(str(id_), str(name or id_)) for id_, name in runs], options.run)
            self.name = str(dict(runs)[self.run] or "")
            self.params = dict(connection.execute("SELECT key, value FROM params WHERE run_uuid = ?", [self.run]).fetchall())

    def describe_opening(self) -> SourceOpening:
        return build_opening(self.name, self.params, self.path)

    def read_new_items(self, final: bool) -> Iterator[list[Item]]:
        asked = f"SELECT rowid, key, value, timestamp, step, is_nan FROM metrics WHERE run_uuid = ? AND rowid > ? ORDER BY rowid LIMIT {ROWS}"  # noqa: S608
        while True:
            with open_read_only(self.path) as connection:
                # The status first: what was logged before it changed is then among the rows.
                status = connection.execute("SELECT status FROM runs WHERE run_uuid = ?", [self.run]).fetchone()
                rows = connection.execute(asked, [self.run, self.position["row"]]).fetchall()
            merger, items = StepMerger(), list[Item]()
            for row, key, value, at, step, is_nan in rows:
                items += merger.add(int(step), at / 1000, {str(key): math.nan if is_nan else float(value)})
                self.position["row"] = row
            if items := [*items, *merger.flush()]:
                yield items
            if len(rows) < ROWS:
                self.outcome = OUTCOMES.get(str(status[0])) if status else None
                return


class MlflowFilesReader(RunReader):
    brings_metrics = True

    def __init__(self, path: Path, position: dict[str, Any], options: ReaderOptions) -> None:
        super().__init__(path, position, options)
        self.marks: dict[str, dict[str, Any]] = position.setdefault("files", {})
        folders = {folder.name: folder for folder in list_mlflow_folders(path)}
        runs = [(id_, read_meta(folder).get("run_name") or id_) for id_, folder in folders.items()]
        self.folder = folders[choose_stored_run(path, runs, options.run)]

    def describe_opening(self) -> SourceOpening:
        files = [file for file in sorted((self.folder / "params").rglob("*")) if file.is_file()]
        params = {file.relative_to(self.folder / "params").as_posix(): file.read_text("utf-8", "replace")[:200] for file in files}
        return build_opening(read_meta(self.folder).get("run_name", ""), params, self.folder)

    def read_new_items(self, final: bool) -> Iterator[list[Item]]:
        self.outcome = OUTCOMES.get(read_meta(self.folder).get("status", ""))
        by_step: dict[int, list[tuple[float, dict[str, float]]]] = {}
        items: list[Item] = []
        for file in sorted((self.folder / "metrics").rglob("*")):
            if file.is_file():
                name = file.relative_to(self.folder / "metrics").as_posix()
                items += self.read_metric(file, name, by_step, final)
        merger = StepMerger()
        for step in sorted(by_step):
            for time, values in by_step[step]:
                items += merger.add(step, time, values)
        if items := [*items, *merger.flush()]:
            yield items

    def read_metric(self, file: Path, name: str, by_step: dict[int, list[tuple[float, dict[str, float]]]], final: bool) -> list[Item]:
        """Puts the new numbers of one metric where they belong; the warnings of its broken lines. Raises SourceError."""
        mark = self.marks.setdefault(name, {"offset": 0, "line": 0})
        items: list[Item] = []
        try:
            for line in read_raw_lines(file, mark["offset"], mark["line"]):
                try:
                    at, value, *step = (line.text or b"").decode().split()
                    by_step.setdefault(int(step[0]) if step else 0, []).append((int(at) / 1000, {name: float(value)}))
                except (ValueError, UnicodeDecodeError):
                    items.append(
                        Warned(attempt=1, time=0.0, message=f"metrics/{name}, line {line.number} was left out: it is not time, value and step")
                    )
                mark |= {"offset": line.end, "line": line.number}
        except OSError as error:
            raise SourceError(f"{file} cannot be read: {error.strerror or error}") from None
        return items


def read_meta(folder: Path) -> dict[str, str]:
    """The plain values of ``meta.yaml``, which MLflow writes flat; nothing where it cannot be read."""
    try:
        lines = (folder / "meta.yaml").read_text("utf-8", "replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition(": ") for line in lines if not line.startswith(("#", " ", "-")))
    return {name: value.strip().strip("'\"") for name, _, value in pairs}


FORMAT = SourceFormat(
    name="mlflow",
    title="MLflow: a store in SQLite or in files",
    looks_for="mlflow.db with the tables runs and metrics, or mlruns/<experiment>/<run>/metrics",
    example="mlruns/1/4f2a…/metrics/train/reward: 1700000000000 0.75 12 (milliseconds, value, step)",
    recognize=recognize_mlflow_store,
    open=open_mlflow_store,
    gives="metrics, parameters, name, how the run ended",
)
