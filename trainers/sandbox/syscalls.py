"""The system calls a program may make, and the seccomp filter that refuses all others.

It is a list of what is allowed: on x86-64 the numbers of the x32 interface (0x40000000 and above) reach the same calls and would pass a list of
what is forbidden. Numbers are those of Linux' tables for x86-64 and of its generic table, which aarch64 uses.
"""

from __future__ import annotations

import ctypes
import errno
import platform

# name: (x86-64, aarch64). Calls that take a path, a socket, another process or another descriptor than an open one are left out; so is
# ``newfstatat``, with which any path could be looked at.
ALLOWED = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "lseek": (8, 62),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132),
    "setitimer": (38, 103),
    "futex": (202, 98),
    "sched_yield": (24, 124),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "nanosleep": (35, 101),
    "gettimeofday": (96, 169),
    "times": (100, 153),
    "getrusage": (98, 165),
    "getrandom": (318, 278),
    "getpid": (39, 172),
    "gettid": (186, 178),
    "exit": (60, 93),
    "exit_group": (231, 94),
}
OTHER_CALLS = {"seccomp": (317, 277), "capset": (126, 91)}  # made before the filter holds
CLOSE_RANGE, LANDLOCK_CREATE, LANDLOCK_RESTRICT = 436, 444, 446  # the same everywhere
AUDIT_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
COLUMNS = {"x86_64": 0, "aarch64": 1}

LOAD, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06  # BPF_LD|BPF_W|BPF_ABS, BPF_JMP|BPF_JEQ|BPF_K, BPF_RET|BPF_K
NUMBER, ARCHITECTURE = 0, 4  # offsets in struct seccomp_data
KILL_PROCESS, REFUSE, ALLOW = 0x80000000, 0x00050000 | errno.EPERM, 0x7FFF0000


class Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("if_true", ctypes.c_uint8), ("if_false", ctypes.c_uint8), ("operand", ctypes.c_uint32)]


class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(Instruction))]


def find_call_number(name: str) -> int:
    """Raises KeyError on an architecture that is not known."""
    return (ALLOWED | OTHER_CALLS)[name][COLUMNS[platform.machine()]]


def build_filter() -> Filter:
    """Another architecture's calls end the process, allowed ones pass, all others fail with EPERM."""
    allowed = [find_call_number(name) for name in ALLOWED]
    program = [
        Instruction(LOAD, 0, 0, ARCHITECTURE),
        Instruction(JUMP_EQUAL, 1, 0, AUDIT_ARCHITECTURES[platform.machine()]),
        Instruction(RETURN, 0, 0, KILL_PROCESS),
        Instruction(LOAD, 0, 0, NUMBER),
        *(Instruction(JUMP_EQUAL, len(allowed) - place, 0, number) for place, number in enumerate(allowed)),
        Instruction(RETURN, 0, 0, REFUSE),
        Instruction(RETURN, 0, 0, ALLOW),
    ]
    return Filter(len(program), (Instruction * len(program))(*program))
