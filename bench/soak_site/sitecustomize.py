"""Loaded by every Python of the soak's lab (``PYTHONPATH``), before anything else.

SOAK_CLOCK names a file with the seconds by which the machine's clock is ahead: ``time.time`` and Django's ``timezone.now`` follow it.
With SOAK_TRAINER ``python -m trainers run`` is the trainer without a model (``bench/soak_trainer.py``).
"""

import importlib.abc
import importlib.machinery
import os
import sys
import time
from datetime import timedelta


class Clock:
    """What the file says, looked at again after a tenth of a second."""

    def __init__(self, path):
        self.path, self.ahead, self.looked, self.real = path, 0.0, -1.0, time.time

    def seconds(self):
        now = time.monotonic()
        if now - self.looked > 0.1:
            self.looked = now
            try:
                with open(self.path) as file:
                    self.ahead = float(file.read() or 0)
            except (OSError, ValueError):
                self.ahead = 0.0
        return self.ahead

    def time(self):
        return self.real() + self.seconds()


class TimezoneFinder(importlib.abc.MetaPathFinder):
    """Django's ``timezone`` with a ``now`` that follows the clock; its datetimes come from C, which nothing in ``time`` reaches."""

    def __init__(self, clock):
        self.clock = clock

    def find_spec(self, name, path, target=None):
        if name != "django.utils.timezone":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        load, clock = spec.loader.exec_module, self.clock

        def exec_module(module):
            load(module)
            real = module.now
            module.now = lambda: real() + timedelta(seconds=clock.seconds())

        spec.loader.exec_module = exec_module
        return spec


if os.environ.get("SOAK_CLOCK"):
    clock = Clock(os.environ["SOAK_CLOCK"])
    time.time = clock.time
    sys.meta_path.insert(0, TimezoneFinder(clock))


def has_one_process(run_file):
    import json

    with open(run_file) as file:
        return json.load(file)["resources"]["processes"] == 1


if os.environ.get("SOAK_TRAINER") and sys.orig_argv[1:4] == ["-m", "trainers", "run"] and has_one_process(sys.orig_argv[4]):
    import runpy

    code = runpy.run_path(os.environ["SOAK_TRAINER"])["run_trainer"](sys.orig_argv[4])
    sys.stdout.flush()
    os._exit(code)
