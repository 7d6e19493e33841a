"""The training library of Policy Lab: TRL runs described by a spec, reported as typed events. No Django, no Celery.

Importing this package, ``trainers.spec``, ``trainers.events``, ``trainers.arrays`` or a task never imports torch, so a web process can.
"""
