"""What a fork gives up before it runs a program. All of it holds until the process ends, whatever the program does.

Order matters: descriptors, then limits, then Landlock, which needs system calls that the filter refuses, then the filter.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
from dataclasses import dataclass

from trainers.sandbox.syscalls import CLOSE_RANGE, LANDLOCK_CREATE, LANDLOCK_RESTRICT, Filter, build_filter, find_call_number

RESULT, CHANNEL = 3, 4  # the descriptors of a program: where its result goes, and the way to the other half of a test
LAST_DESCRIPTOR = 0xFFFFFFFF
SET_PARENT_DEATH_SIGNAL, SET_DUMPABLE, SET_NO_NEW_PRIVS = 1, 4, 38  # of prctl
SET_MODE_FILTER = 1  # of seccomp
CAPABILITY_VERSION = 0x20080522
LANDLOCK_VERSION = 1

libc = ctypes.CDLL(None, use_errno=True)


class JailFailed(OSError):
    """A step did not hold; no program must run."""


class RulesetAttributes(ctypes.Structure):
    """struct landlock_ruleset_attr: what is forbidden unless a rule allows it; there are no rules."""

    _fields_ = [("paths", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64)]


class CapabilityHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


@dataclass(frozen=True)
class JailPlan:
    """What is worked out once, before any fork. ``taken``: bytes of address space that the server itself has."""

    ruleset: RulesetAttributes
    ruleset_size: int
    filter: Filter
    taken: int


def plan_jail() -> JailPlan:
    """Raises JailFailed without Landlock, KeyError on an architecture that is not known."""
    abi = int(libc.syscall(ctypes.c_long(LANDLOCK_CREATE), None, ctypes.c_size_t(0), ctypes.c_uint32(LANDLOCK_VERSION)))
    if abi < 1:
        raise JailFailed("Landlock is missing")
    # 13 rights over paths, then refer (ABI 2), truncate (3), ioctl on devices (5); TCP bind and connect (4); abstract sockets and signals (6).
    rights = 13 + (abi >= 2) + (abi >= 3) + (abi >= 5)
    ruleset = RulesetAttributes((1 << rights) - 1, 0b11 if abi >= 4 else 0, 0b11 if abi >= 6 else 0)
    with open("/proc/self/statm", "rb") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    return JailPlan(ruleset, 8 if abi < 4 else 16 if abi < 6 else 24, build_filter(), taken)


def require_success(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise JailFailed(code, f"{what}: {os.strerror(code)}")
    return result


def call_kernel(what: str, number: int, *arguments: object) -> int:
    return require_success(int(libc.syscall(ctypes.c_long(number), *arguments)), what)


def control_process(option: int, value: int) -> None:
    require_success(int(libc.prctl(option, ctypes.c_ulong(value), *(ctypes.c_ulong(0),) * 3)), f"prctl {option}")


def die_with_server(server: int) -> None:
    """The kernel ends this process when the server ends, also when that is killed."""
    control_process(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(0)


def enter_jail(plan: JailPlan, result: int, channel: int | None, memory: int, cpu_seconds: int) -> None:
    """From here on this process has two descriptors at most, and no way to a file, a socket or another process. Raises JailFailed."""
    keep_descriptors(result, channel)
    drop_capabilities()
    control_process(SET_DUMPABLE, 0)
    set_limits(plan.taken + memory, cpu_seconds)
    control_process(SET_NO_NEW_PRIVS, 1)
    ruleset = call_kernel(
        "landlock_create_ruleset", LANDLOCK_CREATE, ctypes.byref(plan.ruleset), ctypes.c_size_t(plan.ruleset_size), ctypes.c_uint32(0)
    )
    call_kernel("landlock_restrict_self", LANDLOCK_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    os.close(ruleset)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))  # last: the ruleset was a descriptor
    number = find_call_number("seccomp")
    call_kernel("seccomp", number, ctypes.c_uint(SET_MODE_FILTER), ctypes.c_uint(0), ctypes.byref(plan.filter))


def keep_descriptors(result: int, channel: int | None) -> None:
    above = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 16) for descriptor in (result, channel) if descriptor is not None]
    for place, descriptor in enumerate(above):
        os.dup2(descriptor, RESULT + place)
    call_kernel("close_range", CLOSE_RANGE, ctypes.c_uint(0), ctypes.c_uint(RESULT - 1), ctypes.c_uint(0))
    call_kernel("close_range", CLOSE_RANGE, ctypes.c_uint(RESULT + len(above)), ctypes.c_uint(LAST_DESCRIPTOR), ctypes.c_uint(0))


def drop_capabilities() -> None:
    """Of root, too: without capabilities it is a user like others."""
    header, none = CapabilityHeader(CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    call_kernel("capset", find_call_number("capset"), ctypes.byref(header), none)


def set_limits(memory: int, cpu_seconds: int) -> None:
    """``RLIMIT_AS`` counts shared memory, too, unlike ``RLIMIT_DATA``. SIGXCPU, which says why, comes before SIGKILL."""
    for name, value in (("AS", memory), ("FSIZE", 0), ("NPROC", 0), ("CORE", 0), ("MEMLOCK", 0), ("MSGQUEUE", 0)):
        lower_limit(getattr(resource, f"RLIMIT_{name}"), value, value)
    lower_limit(resource.RLIMIT_CPU, cpu_seconds, cpu_seconds + 1)


def lower_limit(which: int, soft: int, hard: int) -> None:
    """An ordinary user cannot raise a hard limit that is lower already."""
    _, present = resource.getrlimit(which)
    if present != resource.RLIM_INFINITY:
        soft, hard = min(soft, present), min(hard, present)
    resource.setrlimit(which, (soft, hard))
