"""Policies and the playground."""
