"""What every worker does for the audit log each few seconds."""

from lab.teams.audit.anchor import keep_anchor
from lab.teams.audit.chain import link_waiting


def sweep_audit_log() -> None:
    """Links entries whose own process died before it could, and keeps the head of the chain outside of the database."""
    link_waiting()
    keep_anchor()
