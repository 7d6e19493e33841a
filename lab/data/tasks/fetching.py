"""Rows that a worker gets from elsewhere: asked for by a page or the API, fetched by the trainers' command in a child, kept as an upload."""

from __future__ import annotations

import json
import re
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.db import transaction

from lab.data.datasets import storage_room, uploads
from lab.data.tasks.models import Fetch, FetchState
from lab.data.tasks.rows import MOST_ROWS
from lab.data.tasks.sources import GYM, HUB
from lab.lib.child_environment import FETCHER
from lab.lib.kept_process import KeptProcess, StartError
from lab.lib.numbers import parse_whole_number
from lab.lib.processes import kill_tree
from lab.lib.refusals import InputRefusal, Problem, Refusal
from lab.teams.accounts.models import Team, User
from lab.teams.audit.recording import record_audit_entry
from lab.training.workers.messages import send_task_message
from trainers.contract.spec import HUB_ID

TASK = "fetch-rows"
SECONDS = 900  # a fetch may take
MOST_OPEN = 3  # fetches of a team at a time
SLUG = re.compile(r"[\w.-]{1,100}", re.ASCII)  # of configurations, splits, revisions and generators
PIECE = 1 << 20


def request_fetch(team: Team, user: User | None, given: Mapping[str, Any]) -> Fetch:
    """Stores what is asked for and tells a worker. ``given``: inputs of the page or fields of the API. Raises Refusal."""
    kind = str(given.get("kind", ""))
    settings, problems = (read_gym_settings if kind == GYM else read_hub_settings)(given)
    if problems:
        raise InputRefusal(problems)
    with transaction.atomic():
        Team.objects.select_for_update(no_key=True).get(pk=team.pk)
        if Fetch.objects.of(team).filter(state__in=(FetchState.QUEUED, FetchState.FETCHING)).count() >= MOST_OPEN:
            raise Refusal(f"{MOST_OPEN} fetches of the team are open already.", "Wait for one to finish.", code="open")
        fetch = Fetch.objects.create(team=team, user=user, kind=GYM if kind == GYM else HUB, settings=settings)
        record_audit_entry("task.fetch", fetch, source=fetch.kind, name=settings["name"])
        transaction.on_commit(lambda: send_task_message(TASK, fetch.pk))
    return fetch


def read_hub_settings(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    text = {name: str(given.get(f"hub_{name}") or "").strip() for name in ("name", "config", "split", "revision")}
    problems = []
    if not re.match(HUB_ID, text["name"]) or len(text["name"]) > 200:
        problems.append(Problem("hub_name", "This is no id of a dataset on the hub.", "Enter owner/name, for example openai/gsm8k."))
    for name, words in (("config", "configuration"), ("split", "split"), ("revision", "revision")):
        if text[name] and not SLUG.fullmatch(text[name]):
            problems.append(Problem(f"hub_{name}", f"This is no {words}.", "Use letters, digits, dots, dashes and underscores."))
    rows = read_row_count(given.get("hub_rows"), problems, "hub_rows")
    return {**text, "split": text["split"] or "train", "revision": text["revision"] or "main", "rows": rows}, problems


def read_gym_settings(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    name, problems = str(given.get("gym_name") or "").strip(), list[Problem]()
    if not SLUG.fullmatch(name):
        problems.append(Problem("gym_name", "Enter a generator of the package.", "For example leg_counting."))
    seed = parse_whole_number(str(given.get("gym_seed") or "0"), 2**31 - 1)
    if seed is None:
        problems.append(Problem("gym_seed", "The seed is a whole number from 0.", "Enter one, such as 0."))
    rows = read_row_count(given.get("gym_rows"), problems, "gym_rows")
    return {"name": name, "seed": seed or 0, "size": rows, "rows": rows}, problems


def read_row_count(text: Any, problems: list[Problem], field: str) -> int:
    rows = parse_whole_number(str(text or "1000"), MOST_ROWS, 1)
    if rows is None:
        problems.append(Problem(field, f"The number of rows is from 1 to {MOST_ROWS:,}.", "Enter another number."))
    return rows or 1


# On the worker.


def run_fetch(fetch_id: str) -> None:
    """Does what a queued fetch asks for; one that somebody else has claimed is left alone."""
    fetch = Fetch.across_teams.filter(pk=fetch_id).select_related("team").first()
    if fetch is None or not fetch.become(FetchState.FETCHING, FetchState.QUEUED):
        return
    with tempfile.TemporaryDirectory(prefix="lab-fetch-") as folder:
        file = Path(folder) / "rows.jsonl"
        try:
            about = fetch_into(fetch, file)
            size = file.stat().st_size
            with storage_room.reserve_storage(fetch.team, size):
                name = f"{str(fetch.settings['name']).replace('/', '-')}.jsonl"
                upload = replace(uploads.save_upload(fetch.team, name, iterate_pieces(file)), kind="jsonl")
            uploads.save_upload_metadata(fetch.team, upload)
        except Refusal as refusal:
            fetch.become(FetchState.FAILED, FetchState.FETCHING, error=str(refusal)[:1000])
            return
    fetch.become(FetchState.READY, FetchState.FETCHING, token=upload.token, about=about)


def iterate_pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece


def fetch_into(fetch: Fetch, file: Path) -> dict[str, Any]:
    """What exactly was fetched. Raises Refusal."""
    asked = {"kind": fetch.kind, "settings": fetch.settings, "file": str(file), "rows": fetch.settings["rows"], "bytes": uploads.MOST_BYTES}
    try:
        child = KeptProcess([sys.executable, "-m", "trainers", "fetch"], FETCHER)
    except StartError as error:
        raise Refusal(f"The fetch {error}.", "Ask the operator of the lab.") from None
    timer = threading.Timer(SECONDS, kill_tree, [child.process.pid])
    timer.daemon = True
    timer.start()
    said: dict[str, Any] = {}
    try:
        assert child.process.stdin
        assert child.process.stdout
        child.process.stdin.write(json.dumps(asked).encode() + b"\n")
        child.process.stdin.flush()
        for line in child.process.stdout:
            said = json.loads(line)
            fetch.beat(int(said.get("rows", 0)))
        child.process.wait()
    except (OSError, ValueError):
        said = {}
    finally:
        late = not timer.is_alive()
        timer.cancel()
        last = child.stderr.last()
        child.end()
    if "about" in said:
        return dict(said["about"])
    if problems := said.get("problems"):
        raise Refusal(f"{fetch.settings['name']}: {problems[0]['message']}.", f"{problems[0]['fix'][:1].upper()}{problems[0]['fix'][1:]}.")
    raise Refusal(f"The fetch took longer than {SECONDS} s." if late else f"The fetch failed: {last[:300] or 'no reason given'}.", "Try fewer rows.")
