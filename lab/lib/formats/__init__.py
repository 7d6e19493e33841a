"""Formats of Django, by language."""
