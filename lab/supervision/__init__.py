"""Processes that train, here and elsewhere, and the ingest of what they report."""
