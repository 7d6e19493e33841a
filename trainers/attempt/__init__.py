"""One attempt at a run, from its spec to the exported policy."""
