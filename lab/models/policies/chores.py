"""What no single worker is responsible for: deleting what is due, applying the teams' rules, and pushes whose worker or message is gone."""

from __future__ import annotations

from lab.models.policies import pushes, removal, retention


def sweep_policies() -> None:
    """One round. Raises database errors; the caller sweeps again later."""
    removal.carry_out()
    retention.apply_rules()
    pushes.revive_lost_pushes()
