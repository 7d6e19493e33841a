"""The training library of Policy Lab: TRL runs described by a spec, reported as typed events. No Django, no Celery.

Importing this package, ``trainers.contract`` or a task never imports torch, so a web process can.
"""

import os

# Read by OpenMP when torch is loaded. By default its threads spin while they wait for each other: as soon as anything else wants a core (a
# database, a web server, a second run), a training on two cores becomes four times slower than with threads that sleep.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
