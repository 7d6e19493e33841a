"""Runs of other frameworks, read from the files they write anyway: ``python -m trainers send --from FORMAT PATH [--follow]``.

One module a format; docs/formats.md lists them. Nothing here needs torch, numpy or the framework that wrote the files.
"""
