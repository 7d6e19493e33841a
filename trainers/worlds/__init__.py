"""Worlds of multi-turn tasks: pure steps on JSON states. No torch: the web process may import all of it."""
