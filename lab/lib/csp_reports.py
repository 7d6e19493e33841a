"""Where browsers say what a page was kept from doing: a line of the log each; who sends them is unknown, so they are few and short."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from threading import Lock
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

log = logging.getLogger(__name__)

MOST_BYTES = 8192
MOST_A_MINUTE = 30  # for the whole process: a broken page repeats itself, an attacker does too
FIELDS = ("document-uri", "violated-directive", "effective-directive", "blocked-uri", "source-file", "line-number")


class ReportBudget:
    """``MOST_A_MINUTE`` a minute, then none until the next one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.lock, self.minute, self.spent = Lock(), 0, 0

    def take(self) -> bool:
        with self.lock:
            minute = int(self.clock() // 60)
            if minute != self.minute:
                self.minute, self.spent = minute, 0
            self.spent += 1
            return self.spent <= MOST_A_MINUTE


budget = ReportBudget()


@csrf_exempt
@login_not_required
@require_POST
def receive_csp_report(request: HttpRequest) -> HttpResponse:
    """204 in any case that is a report; 413 when it is too large, 400 when it is none."""
    if int(request.headers.get("Content-Length") or 0) > MOST_BYTES:
        return HttpResponse(status=413)
    if not budget.take():
        return HttpResponse(status=429)
    report = parse_csp_report(request.read(MOST_BYTES))
    if report is None:
        return HttpResponse(status=400)
    log.warning("a page was kept from something by its content policy: %s", json.dumps(report))
    return HttpResponse(status=204)


def parse_csp_report(body: bytes) -> dict[str, str] | None:
    """The fields worth a line, each cut; None when it is no report. The query of an address may name what people looked for, so it is left out."""
    try:
        sent: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    inner = sent.get("csp-report") if isinstance(sent, dict) else None
    if not isinstance(inner, dict):
        return None
    return {name: str(inner[name]).split("?", 1)[0][:200] for name in FIELDS if name in inner}
