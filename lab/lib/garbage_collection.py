"""How often Python looks for garbage: of its own bound, 700 new objects, a page, a batch of rollouts or a start of the lab meets many."""

from __future__ import annotations

import gc

YOUNG = 20_000  # objects made before the newest are looked through: those of some twenty pages


def collect_rarely() -> None:
    gc.set_threshold(YOUNG)


def freeze_loaded() -> None:
    """What is loaded by now stays for good and is not looked through again."""
    gc.collect()
    gc.freeze()
    collect_rarely()
