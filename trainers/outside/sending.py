"""Sends a spool to a lab as it grows. The file is the memory: whatever happens to the network, the lab or this process, sending goes on from
the byte the lab says it has, now or later (``python -m trainers send FOLDER``, of the client ``policy_lab send FOLDER``)."""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from trainers.contract.spool import SPOOL
from trainers.outside.client import LabClient, LabError

log = logging.getLogger(__name__)

SEND = "policy_lab send" if __name__.startswith("policy_lab.") else "python -m trainers send"  # as installed from the client's wheel, or here
OPENING = "outside.json"  # beside the spool: how the run was introduced, and its key
PIECE_BYTES = 4 << 20
EVERY_SECONDS = 1.0
PATIENCE = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)  # seconds between tries while the lab is away


def ensure_run_opening(folder: Path, opening: dict[str, Any]) -> dict[str, Any]:
    """The opening kept in ``folder``, written there when there is none yet: a script started again continues its run."""
    path = folder / OPENING
    if path.exists():
        return dict(json.loads(path.read_text()))
    folder.mkdir(parents=True, exist_ok=True)
    opening = {"key": str(uuid.uuid4()), **opening}
    path.write_text(json.dumps(opening, indent=2))
    return opening


class Sender:
    """One run's way to the lab. ``step`` does one request; ``finish`` goes on until everything is there or the time is over."""

    def __init__(self, client: LabClient, folder: Path) -> None:
        self.client, self.folder = client, folder
        self.opening = json.loads((folder / OPENING).read_text())
        self.offset: int | None = None  # None until the lab has said how much it has
        self.page = ""
        self.stop_asked = False

    def step(self) -> bool:
        """Sends the next piece; whether there is more to send. Raises LabError."""
        if self.offset is None:
            self.page, self.offset = self.client.open_run(**self.opening)
        data = self.piece()
        if not data:
            return False
        answer = self.client.send(self.opening["key"], self.offset, data)
        self.offset, self.stop_asked = answer.offset, answer.stop
        return True

    def tell_alive(self) -> None:
        """A heartbeat while there is nothing to send: the lab gives a silent run up. Raises LabError."""
        if self.offset is not None:
            answer = self.client.send(self.opening["key"], self.offset, b"")
            self.offset, self.stop_asked = answer.offset, answer.stop

    def piece(self) -> bytes:
        """Whole lines from the offset on; one line however long it is."""
        path = self.folder / SPOOL
        if not path.exists():
            return b""
        with path.open("rb") as file:
            file.seek(self.offset or 0)
            data = file.read(PIECE_BYTES)
            while data and b"\n" not in data:
                more = file.read(PIECE_BYTES)
                if not more:
                    return b""
                data += more
        return data[: data.rfind(b"\n") + 1]

    def finish(self, seconds: float) -> bool:
        """Sends what is left; whether everything is in the lab. Raises LabError for what no waiting mends."""
        deadline, tries = time.monotonic() + seconds, 0
        while True:
            try:
                if not self.step():
                    return True
                tries = 0
            except LabError as error:
                if not error.temporary:
                    raise
                pause = max(error.wait, PATIENCE[min(tries, len(PATIENCE) - 1)])
                tries += 1
                if time.monotonic() + pause > deadline:
                    log.warning("%s; the rest stays in %s", error, self.folder)
                    return False
                time.sleep(pause)


class BackgroundSender(threading.Thread):
    """Sends from a thread of its own: training never waits for the lab, and no failure of it reaches training."""

    def __init__(self, sender: Sender) -> None:
        super().__init__(name="lab sender", daemon=True)
        self.sender = sender
        self.over = threading.Event()

    def run(self) -> None:
        tries = 0
        while not self.over.is_set():
            pause = EVERY_SECONDS
            try:
                while not self.over.is_set() and self.sender.step():
                    pass
                tries = 0
            except LabError as error:
                if not error.temporary:
                    log.error("%s. Nothing more is sent; the run is kept in %s: %s %s", error, self.sender.folder, SEND, self.sender.folder)
                    return
                pause = max(error.wait, PATIENCE[min(tries, len(PATIENCE) - 1)])
                if tries in (0, len(PATIENCE) - 1):
                    log.warning("%s; what happens meanwhile is kept in %s and sent later", error, self.sender.folder)
                tries += 1
            except Exception:
                log.exception("sending to the lab failed; the run is kept in %s", self.sender.folder)
                return
            self.over.wait(pause)
