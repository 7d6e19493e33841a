"""What can be known about a run before a model loads."""
