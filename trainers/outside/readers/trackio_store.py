"""Trackio's database of a project: ``<project>.db`` in ``TRACKIO_DIR``, by default ``~/.cache/huggingface/trackio``.

Read from gradio-app/trackio, commit 2a027522c487b16755d1cdf12e1ae45a9b6eb15a, ``trackio/sqlite_storage.py``: a row of ``metrics`` has id, run_id,
run_name, timestamp (ISO 8601), step and what was logged as JSON, in which NaN and infinity are texts; ``configs`` has a run's settings. The ids
ascend. Earlier versions have no run_id: there the name is it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from trainers.contract.events import Warned
from trainers.outside.readers.base import Item, ReaderOptions, RunReader, SourceFormat, SourceOpening, list_folder
from trainers.outside.readers.metric_rows import StepMerger, find_logged_step, read_logged_numbers
from trainers.outside.readers.source_config import pick_plain_settings
from trainers.outside.readers.sqlite_stores import choose_stored_run, has_tables, open_read_only

ROWS = 5000  # read at once


def find_trackio_store(path: Path) -> Path | None:
    files = [path] if path.is_file() else [file for file in list_folder(path) if file.suffix == ".db"]
    found = [file for file in files if has_tables(file, ("metrics", "configs"))]
    return found[0] if len(found) == 1 else None


def recognize_trackio_store(path: Path) -> bool:
    return find_trackio_store(path) is not None


class TrackioReader(RunReader):
    brings_metrics = True

    def __init__(self, path: Path, position: dict[str, Any], options: ReaderOptions) -> None:
        super().__init__(path, position, options)
        self.store = find_trackio_store(path) or path
        position.setdefault("id", 0)
        with open_read_only(self.store) as connection:
            columns = {row[1] for row in connection.execute("PRAGMA table_info(metrics)")}
            self.key = "run_id" if "run_id" in columns else "run_name"
            runs = connection.execute(f"SELECT {self.key}, max(run_name) FROM metrics GROUP BY 1 ORDER BY min(id)").fetchall()  # noqa: S608
            self.run = choose_stored_run(self.store, [(str(id_), str(name)) for id_, name in runs], options.run)
            self.name = dict(runs)[self.run]
            row = connection.execute(f"SELECT config FROM configs WHERE {self.key} = ?", [self.run]).fetchone()  # noqa: S608
        self.config = read_json_object(row[0]) if row else {}

    def describe_opening(self) -> SourceOpening:
        policy = next((str(self.config[name]) for name in ("model", "model_name_or_path", "_name_or_path") if self.config.get(name)), "")
        return SourceOpening(
            name=self.name, policy=policy, task=self.store.stem, config=pick_plain_settings(self.config) | {"store": str(self.store)}
        )

    def read_new_items(self, final: bool) -> Iterator[list[Item]]:
        asked = f"SELECT id, timestamp, step, metrics FROM metrics WHERE {self.key} = ? AND id > ? ORDER BY id LIMIT {ROWS}"  # noqa: S608
        while True:
            with open_read_only(self.store) as connection:
                rows = connection.execute(asked, [self.run, self.position["id"]]).fetchall()
            if not rows:
                return
            merger, items = StepMerger(), list[Item]()
            for id_, at, step, logged in rows:
                try:
                    numbers = read_logged_numbers(json.loads(logged))
                    items += merger.add(find_logged_step(numbers, int(step)), read_time(at), numbers)
                except (ValueError, TypeError, AttributeError) as error:
                    items.append(Warned(attempt=1, time=0.0, message=f"{self.store.name}, row {id_} of metrics was left out: {error}"[:500]))
                self.position["id"] = id_
            yield [*items, *merger.flush()]


def read_json_object(text: Any) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def read_time(text: Any) -> float:
    """Seconds since 1970 of a time in ISO 8601; 0 for anything else."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return 0.0


FORMAT = SourceFormat(
    name="trackio",
    title="Trackio: the database of a project",
    looks_for="<project>.db with the tables metrics and configs",
    example='sums.db: step 12 of the run sums-grpo: {"train/reward": 0.75, "train/loss": 0.1}',
    recognize=recognize_trackio_store,
    open=TrackioReader,
    gives="metrics, settings, name",
)
