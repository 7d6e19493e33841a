"""What no page does by itself: every worker calls it now and then."""

from __future__ import annotations

from lab.labelling.labels.item_order import reorder_grown


def sweep() -> None:
    """One round. Raises database errors; the caller sweeps again later."""
    reorder_grown()
