"""A lab's runs, rollouts, labels and datasets, and its launches, over its API."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from policy_lab.following import follow_run
from policy_lab.records import (
    Dataset,
    DatasetDetail,
    Label,
    Launched,
    Page,
    Point,
    Queue,
    Rollout,
    Run,
    RunDetail,
    SeriesAnswer,
    Tokens,
    Update,
    Version,
)
from policy_lab.requests import PATIENCE, PatientClient
from policy_lab.rows import Rows
from trainers.outside.client import LabError

Row = TypeVar("Row")
AnyRun = Run | str | int  # a run, its id, or its number in the team
PAGE = 200  # rows; the most that the API gives
NAMES = 20  # metrics of one request
PAUSE = 2.0  # seconds between two looks at a run


class Lab:
    """One team of a lab, as the access token sees it. ``url`` and ``token`` come from LAB_URL and LAB_TOKEN when not given.

    Methods raise LabError with the lab's words; its ``problems`` name each invalid field and the fix. While the lab is busy or restarted, requests
    are repeated for ``patience`` seconds.
    """

    def __init__(self, url: str | None = None, token: str | None = None, patience: float = PATIENCE) -> None:
        self.requests = PatientClient(url, token, patience)

    def ask(self, method: str, path: str, body: Any = None, *, key: str = "", **query: Any) -> Any:
        """Any operation of the API: ``lab.ask("POST", "/recalls/preview", {"kind": "labeller", "labeller": 3})``. ``key``: Idempotency-Key."""
        if method == "GET":
            return self.requests.fetch(path, Any, query)  # type: ignore[arg-type]
        return self.requests.submit(method, path, Any, body, query, key=key, repeatable=method == "PUT")  # type: ignore[arg-type]

    def list_rows(self, path: str, kind: type[Row], after: str = "", **query: Any) -> Rows[Row]:
        """The rows of any list of the API, as ``kind``."""

        def fetch_page(cursor: str) -> tuple[list[Row], str | None]:
            page = self.requests.fetch(path, Page[kind], {**query, "after": cursor or None, "limit": PAGE})  # type: ignore[valid-type]
            return page.items, page.next

        return Rows(fetch_page, after)

    # reading

    def runs(self, after: str = "", **filters: str) -> Rows[Run]:
        """Newest first. ``filters`` as in the API: status, recipe, method, task, who, project, tag, archived, q."""
        return self.list_rows("/runs", Run, after, **filters)

    def run(self, run: AnyRun) -> RunDetail:
        """By id or number; its spec can be launched again."""
        return self.requests.fetch(f"/runs/{self.find_run_id(run)}", RunDetail)

    def find_run_id(self, run: AnyRun) -> str:
        """Raises LabError where the team has no run of that number."""
        if isinstance(run, Run):
            return run.id
        if not str(run).isdigit():
            return str(run)
        found = [one.id for one in self.runs(q=str(run), archived="any") if one.number == int(run)]
        if not found:
            raise LabError(f"your team has no run #{run}", 404)
        return found[0]

    def find_run_number(self, run: AnyRun) -> int:
        if isinstance(run, Run):
            return run.number
        return int(run) if str(run).isdigit() else self.run(run).number

    def metric_names(self, run: AnyRun) -> list[str]:
        return self.requests.fetch(f"/runs/{self.find_run_id(run)}/metrics", list[str])

    def metrics(self, run: AnyRun, names: Sequence[str] = (), after: str = "", points: int = 0) -> Rows[Point]:
        """Metric by metric, ascending by step; all metrics without ``names``. ``points``: thinned to the extremes of so many step ranges, 0 is every
        point. ``@time`` (seconds since 1970) and ``@tokens`` are names too.
        """
        run_id, wanted = self.find_run_id(run), list(names)

        def fetch_page(cursor: str) -> tuple[list[Point], str | None]:
            # The position names the metrics, so that it holds when new ones appear.
            rest = json.loads(cursor) if cursor else wanted or self.metric_names(run_id)
            if not rest:
                return [], None
            answer = self.requests.fetch(f"/runs/{run_id}/series", SeriesAnswer, {"name": rest[:NAMES], "points": points})
            rows = [point for series in answer.series for point in series.list_points()]
            return rows, json.dumps(rest[NAMES:]) if rest[NAMES:] else None

        return Rows(fetch_page, after)

    def rollouts(
        self,
        run: AnyRun | Sequence[AnyRun] | None = None,
        filters: Sequence[str] = (),
        words: str = "",
        pattern: str = "",
        sort: str = "",
        repeated: bool = False,
        after: str = "",
    ) -> Rows[Rollout]:
        """Newest first, or by ``sort`` (``-reward``). ``filters`` as in the address of the rollout browser: ``reward:ge:0.5``, ``step:le:100``.

        ``words`` and ``pattern`` (a regular expression) are searched in completions; ``repeated`` also gives steps that a resumed attempt replaced.
        """
        runs = [] if run is None else [run] if isinstance(run, Run | str | int) else list(run)
        numbers = [self.find_run_number(one) for one in runs]
        query = {
            "run": numbers,
            "f": list(filters),
            "q": words or None,
            "re": pattern or None,
            "sort": sort or None,
            "tries": "1" if repeated else None,
        }
        return self.list_rows("/rollouts", Rollout, after, **query)

    def rollout(self, rollout_id: int) -> Rollout:
        return self.requests.fetch(f"/rollouts/{rollout_id}", Rollout)

    def tokens(self, rollout_id: int) -> Tokens:
        """Ids, log-probabilities, entropies and more, a value per token."""
        return self.requests.fetch(f"/rollouts/{rollout_id}/tokens", Tokens)

    def queues(self, after: str = "", **filters: str) -> Rows[Queue]:
        """Labelling queues, newest first. ``filters``: status, kind, q."""
        return self.list_rows("/queues", Queue, after, **filters)

    def labels(self, queue: Queue | int, after: str = "") -> Rows[Label]:
        """Newest first, withdrawn ones too: ``state`` says which count."""
        return self.list_rows(f"/queues/{queue.id if isinstance(queue, Queue) else queue}/labels", Label, after)

    def datasets(self, after: str = "") -> Rows[Dataset]:
        return self.list_rows("/datasets", Dataset, after)

    def dataset(self, dataset_id: int) -> DatasetDetail:
        """With its versions, newest first."""
        return self.requests.fetch(f"/datasets/{dataset_id}", DatasetDetail)

    def version(self, version_id: int) -> Version:
        return self.requests.fetch(f"/versions/{version_id}", Version)

    def version_rows(self, version: Version | int, split: str = "train", provenance: bool = False) -> Iterator[dict[str, Any]]:
        """Rows in TRL's format. A stream that breaks off is taken up where it was: a version never changes."""
        version_id = version.id if isinstance(version, Version) else version
        query = {"split": split, "provenance": "true" if provenance else "false"}
        return map(json.loads, self.requests.stream_lines(f"/versions/{version_id}/rows", query))

    def apply_tool(
        self,
        version: Version | int,
        tool: str,
        config: dict[str, Any] | None = None,
        *,
        seed: int = 0,
        name: str = "",
        dataset: int | None = None,
        notes: str = "",
        key: str = "",
    ) -> Version:
        """A version that a dataset tool makes of this one: of a new dataset, or the next one of ``dataset``. A worker builds it;
        ``wait_for_version`` waits. The same ``key`` makes it once within a day.
        """
        version_id = version.id if isinstance(version, Version) else version
        body = {"tool": tool, "config": config or {}, "seed": seed, "name": name, "dataset": dataset, "notes": notes}
        return self.requests.submit("POST", f"/versions/{version_id}/tool", Version, body, key=key or str(uuid.uuid4()))

    def wait_for_version(self, version: Version | int, seconds: float | None = None, pause: float = PAUSE) -> Version:
        """Until it is ready or its build has failed; ``state`` says which. Raises LabError after ``seconds`` (None: never)."""
        version_id, deadline = version.id if isinstance(version, Version) else version, None if seconds is None else time.monotonic() + seconds
        while (found := self.version(version_id)).state not in ("ready", "failed"):
            if deadline is not None and time.monotonic() + pause > deadline:
                raise LabError(f"version {found.number} of dataset {found.dataset} is still {found.state} after {seconds:g} s")
            time.sleep(pause)
        return found

    # launching

    def launch(
        self,
        recipe: str = "",
        overrides: dict[str, Any] | None = None,
        *,
        spec: dict[str, Any] | None = None,
        after: AnyRun | None = None,
        name: str = "",
        project: int | None = None,
        check: bool = True,
        key: str = "",
    ) -> Launched:
        """From a recipe with changes, or from a complete ``spec`` (of ``run(…).spec``), which may go on ``after`` a run. If anything is invalid,
        nothing is queued, and the error names every field. ``check`` runs the preflight first. The same ``key`` launches once within a day.
        """
        body = {"recipe": recipe, "overrides": overrides or {}, "spec": spec, "name": name, "project": project, "check": check}
        if after is not None:
            body["after"] = self.find_run_id(after)
        return self.requests.submit("POST", "/runs", Launched, body, key=key or str(uuid.uuid4()))

    def wait(self, run: AnyRun, seconds: float | None = None, pause: float = PAUSE) -> RunDetail:
        """Until it has ended; ``status`` says how. Raises LabError after ``seconds`` (None: never)."""
        run_id, deadline = self.find_run_id(run), None if seconds is None else time.monotonic() + seconds
        while True:
            found = self.run(run_id)
            if found.ended:
                return found
            if deadline is not None and time.monotonic() + pause > deadline:
                raise LabError(f"run #{found.number} is still {found.status} after {seconds:g} s, at step {found.step} of {found.total_steps}")
            time.sleep(pause)

    def stop(self, run: AnyRun) -> Run:
        """It finishes its step and saves, so that it can be resumed. Nothing happens to a run that is stopping or stopped already."""
        run_id = self.find_run_id(run)
        try:
            return self.requests.submit("POST", f"/runs/{run_id}/stop", Run, repeatable=True)
        except LabError as error:
            found = self.run(run_id) if error.status == 409 else None
            if found is None or found.status not in ("stopping", "stopped"):
                raise
            return found

    def stream(self, run: AnyRun, rollouts: bool = True, position: str = "", pause: float = PAUSE) -> Iterator[Update]:
        """What the run has and what it gets, until it has ended: metric points and, unless left out, rollouts, each once. Following goes on from the
        ``position`` of an update.
        """
        return follow_run(self, self.find_run_id(run), rollouts, position, pause)
