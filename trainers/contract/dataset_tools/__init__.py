"""Dataset tools: pure functions from rows to rows, applied before a run. Read ``base.py`` first; ``registry.py`` lists the tools there are."""
