"""Rows from elsewhere, written to a file: a dataset of the hub, or a generator of the package reasoning-gym.

``python -m trainers fetch`` reads a request (JSON) from standard input and writes the rows as JSON lines to the file that it names; standard output
gets a line for each thousand rows, and at last what exactly was fetched, or the problems. Nobody's code is run: the hub's datasets are read as data.
"""

import json
import os
from collections.abc import Callable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from trainers.contract.problems import Problem, SpecError

BEAT = 1000  # rows between two lines of progress
LONGEST_ROW = 10_000_000  # bytes
GYM = "reasoning_gym"

Row = dict[str, Any]
Say = Callable[[Row], None]


def fetch_rows(request: Row, say: Say) -> None:
    """Raises SpecError. ``request``: kind (hub, gym), settings, file, rows and bytes at most."""
    settings = request["settings"]
    rows, about = open_gym(settings) if request["kind"] == "gym" else open_hub_dataset(settings)
    count = size = 0
    with open(request["file"], "xb") as file:
        for row in islice(rows, int(request["rows"])):
            line = encode_row(row)
            size += len(line)
            if size > int(request["bytes"]):
                message = f"has more than {int(request['bytes']) // 1_000_000} MB in its first {count:,} rows"
                raise SpecError([Problem("rows", request["rows"], message, f"fetch at most {max(1, count // 2)} rows")])
            file.write(line)
            count += 1
            if count % BEAT == 0:
                say({"rows": count})
    if not count:
        raise SpecError([Problem("name", settings.get("name"), "has no rows", "choose another split")])
    say({"rows": count, "about": about})


def encode_row(row: Row) -> bytes:
    """Raises SpecError for a row that is too large. What JSON has no word for becomes text."""
    line = json.dumps(row, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n"
    if len(line) > LONGEST_ROW:
        raise SpecError([Problem("name", None, f"has a row of {len(line) // 1_000_000} MB", "choose a dataset of texts", given=False)])
    return line


def open_hub_dataset(settings: Row, path: Path | None = None) -> tuple[Iterator[Row], Row]:
    """(rows, the commit that they are of). ``path``: a folder in the form of a repository, in place of the hub. Raises SpecError."""
    from datasets import load_dataset
    from datasets.exceptions import DatasetNotFoundError
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    name, revision = settings["name"], settings.get("revision") or "main"
    try:
        commit = "" if path else str(HfApi().dataset_info(name, revision=revision).sha)
        where = {} if path else {"revision": commit}
        found = load_dataset(str(path or name), settings.get("config") or None, split=settings.get("split") or "train", streaming=True, **where)
        first = next(iter(found), None)  # what is wrong with its files is said before anything is written
    except DatasetNotFoundError:
        raise refuse_fetch(name, "the hub has no such dataset, or it may not be read with this worker's token") from None
    except OfflineModeIsEnabled:
        raise refuse_fetch(name, "HF_HUB_OFFLINE is set where the worker runs", "unset it there, or upload the file") from None
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        if status in (401, 403):
            raise refuse_fetch(name, "the hub wants a token that may read it", "set HF_TOKEN where the worker runs") from None
        raise refuse_fetch(name, "the hub has no such dataset or revision" if status == 404 else f"the hub answers {status}") from None
    except (ValueError, OSError, RuntimeError) as error:
        raise refuse_fetch(name, shorten_line(str(error)), "correct the name, the configuration and the split") from None
    return (iter(()) if first is None else read_examples(found)), {"commit": commit} if commit else {}


def read_examples(found: Any) -> Iterator[Row]:
    for row in found:
        yield dict(row)


def open_gym(settings: Row) -> tuple[Iterator[Row], Row]:
    """Rows of a generator: question, answer, and its metadata as text. Raises SpecError."""
    if find_spec(GYM) is None:
        raise SpecError(
            [Problem("gym", None, "the package reasoning-gym is not installed on this worker", "pip install reasoning-gym there", given=False)]
        )
    import reasoning_gym  # type: ignore[import-not-found,unused-ignore]

    try:
        made = reasoning_gym.create_dataset(settings["name"], size=int(settings["size"]), seed=int(settings.get("seed") or 0))
    except (ValueError, TypeError, AssertionError) as error:
        raise SpecError([Problem("gym", settings["name"], shorten_line(str(error)), "choose a generator of the package")]) from None
    rows = ({"question": one["question"], "answer": one["answer"], "metadata": json.dumps(one.get("metadata"), default=str)} for one in made)
    return rows, {"package": f"reasoning-gym {version('reasoning-gym')}"}


def refuse_fetch(name: str, why: str, fix: str = "correct the name, or set HF_TOKEN where the worker runs") -> SpecError:
    return SpecError([Problem("hub", name, why, fix)])


def shorten_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else f"{line[:299]}…"


def run_fetch(text: bytes, say: Say) -> bool:
    """Whether the rows are there; else the last thing said is why not."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:
        fetch_rows(json.loads(text), say)
    except SpecError as error:
        say({"problems": error.as_json()})
        return False
    return True
