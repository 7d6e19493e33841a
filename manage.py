#!/usr/bin/env python3
"""Django's command line, with the embedded services started first where no others are named."""

import os
import sys


def main() -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lab.settings")
    from lab import embedded

    try:
        embedded.provide()
    except embedded.ServiceError as error:
        print(f"policy lab: {error}", file=sys.stderr)
        return 1
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
    return 0


if __name__ == "__main__":
    sys.exit(main())
