"""``send``: the command that sends a run kept in a folder, or read from another framework's files, of ``python -m trainers`` and of the client."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from trainers.outside.client import LabClient, LabError
from trainers.outside.readers.base import SourceError
from trainers.outside.sending import OPENING, Sender
from trainers.outside.source_arguments import add_source_arguments, read_source_request

SENT, AWAY, REFUSED = 0, 1, 2


def add_send_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "exit codes: 0 everything is in the lab, 1 it cannot be reached, 2 it refuses the run, or the files cannot be read"
    parser.add_argument("folder", nargs="?", metavar="FOLDER", help="the folder with events.jsonl and outside.json")
    add_source_arguments(parser)
    parser.add_argument("--wait", type=float, default=60.0, metavar="SECONDS", help="seconds to retry while the server is unreachable (60)")


def send_from_arguments(options: argparse.Namespace) -> int:
    if bool(options.sources) == bool(options.folder):
        print("name either FOLDER, a run that was kept, or --from FORMAT PATH", file=sys.stderr)
        return REFUSED
    if options.folder:
        return send_kept_run(Path(options.folder), options.wait)
    from trainers.outside.source_sending import send_sources  # the readers, which a kept run needs none of

    try:
        return send_sources(read_source_request(options), LabClient())
    except (LabError, SourceError) as error:
        print(error, file=sys.stderr)
        return REFUSED


def send_kept_run(folder: Path, wait: float) -> int:
    """Imports nothing of transformers: a machine that only sends needs none of it."""
    if not (folder / OPENING).exists():
        print(f"{folder} holds no {OPENING}: name the folder in which watch() kept the run", file=sys.stderr)
        return REFUSED
    try:
        sender = Sender(LabClient(), folder)
        if not sender.finish(wait):
            print("not everything is in the lab yet; try again later", file=sys.stderr)
            return AWAY
    except LabError as error:
        print(error, file=sys.stderr)
        return REFUSED
    print(f"{sender.client.url}{sender.page}: {sender.offset} bytes")
    return SENT
