#!/usr/bin/env python3
"""Django's command line, with the embedded services started first where no others are named."""

import os
import signal
import sys

from lab.lib.garbage_collection import collect_rarely
from trainers.contract.frame_stack import call_with_frame_room


def prepare(arguments: list[str]) -> None:
    """What must be in the environment before settings are read. Raises embedded.ServiceError and ImproperlyConfigured."""
    from lab import embedded
    from lab.lib.secret_files import read_secret_files

    read_secret_files(os.environ)
    if not arguments or {"--help", "-h", "help", "--version"} & set(arguments):
        os.environ.setdefault("DATABASE_URL", "postgres:///")  # help connects to nothing
        os.environ.setdefault("REDIS_URL", "unix:///")
        os.environ.setdefault("SECRET_KEY", "not used for signing: only help is printed")
        return
    if arguments[0] == "demo" and {"DATABASE_URL", "REDIS_URL"} & set(os.environ):
        embedded.own_home("demo")  # servers that somebody has named are not for a demo
    if arguments[0] in ("worker", "launch"):
        os.environ.setdefault("LAB_DB_POOL", "0")  # a pool's threads do not survive the fork of a worker
    embedded.provide_services()


def main() -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lab.settings")
    collect_rarely()  # of Python's own bound a fifth of a start went into finding nothing
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that services are left in order
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    from lab.embedded import ServiceError

    try:
        if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
            sys.argv[1] = sys.argv[1].replace("-", "_")  # verify-audit
        prepare(sys.argv[1:])
        execute_from_command_line(sys.argv)
    except (ServiceError, ImproperlyConfigured) as error:
        print(f"policy lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(call_with_frame_room(main))
