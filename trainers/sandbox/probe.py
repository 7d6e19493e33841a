"""What this machine's kernel offers to hold programs with, found out without changing anything of the process that asks."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from dataclasses import dataclass
from typing import Any

from trainers.sandbox.syscalls import AUDIT_ARCHITECTURES, LANDLOCK_CREATE, REFUSE, find_call_number

LANDLOCK_VERSION = 1  # flag of landlock_create_ruleset: say the ABI
GET_ACTION_AVAILABLE = 2  # operation of seccomp
GET_NO_NEW_PRIVS = 39  # of prctl
ERRNO_ACTION = REFUSE & 0xFFFF0000


@dataclass(frozen=True)
class SandboxProbe:
    """``landlock``: its ABI, 0 where it is missing. ``missing``: why programs cannot be held, a sentence each; empty when they can."""

    system: str
    architecture: str
    landlock: int
    seccomp: bool
    no_new_privs: bool
    address_space: bool  # RLIMIT_AS can be set
    process_descriptors: bool
    missing: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.missing

    def explain(self) -> str:
        """One line for people."""
        if self.missing:
            return "Programs are not run on this machine: " + "; ".join(self.missing)
        more = "".join(words for abi, words in ((4, ", no TCP"), (6, ", no signals")) if self.landlock >= abi)
        return f"Programs are held by seccomp, Landlock (ABI {self.landlock}: no paths{more}) and resource limits"

    def as_json(self) -> dict[str, Any]:
        return {
            "holds": self.holds,
            "system": self.system,
            "architecture": self.architecture,
            "landlock_abi": self.landlock,
            "seccomp": self.seccomp,
            "no_new_privs": self.no_new_privs,
            "address_space_limit": self.address_space,
            "process_descriptors": self.process_descriptors,
            "missing": list(self.missing),
            "explanation": self.explain(),
        }


def probe_sandbox() -> SandboxProbe:
    """Costs some microseconds. The server tries besides, once at its start, that a program of its own is really held."""
    known = sys.platform == "linux" and platform.machine() in AUDIT_ARCHITECTURES
    landlock, seccomp, privileges = (ask_landlock_abi(), ask_seccomp(), ask_no_new_privs()) if known else (0, False, False)
    address_space = known and find_limit("RLIMIT_AS")
    descriptors = known and hasattr(os, "pidfd_open") and hasattr(os, "memfd_create")
    found = (
        (known, f"only Linux on x86-64 or aarch64 can hold them, this is {platform.system()} on {platform.machine()}"),
        (
            landlock > 0 or not known,
            "Landlock is missing: it needs Linux 5.13 or newer, 'landlock' in the kernel's lsm= list, and a container that allows it",
        ),
        (seccomp or not known, "seccomp filters are missing: they need a kernel with CONFIG_SECCOMP_FILTER and a container that allows them"),
        (privileges or not known, "no_new_privs is missing from this kernel"),
        (address_space or not known, "the address space cannot be limited (RLIMIT_AS)"),
        (descriptors or not known, "this Python has no os.pidfd_open or os.memfd_create: use a build against a newer C library"),
    )
    missing = tuple(words for holds, words in found if not holds)
    return SandboxProbe(platform.system(), platform.machine(), landlock, seccomp, privileges, address_space, descriptors, missing)


def ask_landlock_abi() -> int:
    return max(0, int(ctypes.CDLL(None).syscall(ctypes.c_long(LANDLOCK_CREATE), None, ctypes.c_size_t(0), ctypes.c_uint32(LANDLOCK_VERSION))))


def ask_seccomp() -> bool:
    action = ctypes.c_uint32(ERRNO_ACTION)
    call = ctypes.c_long(find_call_number("seccomp"))
    return int(ctypes.CDLL(None).syscall(call, ctypes.c_uint(GET_ACTION_AVAILABLE), ctypes.c_uint(0), ctypes.byref(action))) == 0


def ask_no_new_privs() -> bool:
    return int(ctypes.CDLL(None).prctl(GET_NO_NEW_PRIVS, *(ctypes.c_ulong(0),) * 4)) >= 0


def find_limit(name: str) -> bool:
    import resource

    return hasattr(resource, name)
