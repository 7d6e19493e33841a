"""What an attempt's code runs in: commit, installed packages, the task's own package, hardware and driver. Environment variables are left out."""

import json
import os
import platform
import re
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import torch

from trainers.attempt.code_version import find_code_version
from trainers.contract.events import Code, Environment, Hardware, Package

HEADER = re.compile(r"^(Name|Version):[ \t]*(.+?)[ \t]*$", re.MULTILINE)


def describe_environment(code: Code, task: Distribution | None = None) -> Environment:
    """``task``: the package that the run's task comes from, where it is not a built-in one."""
    return Environment(code, list_packages(), describe_package(task) if task is not None else None, describe_hardware())


def list_packages() -> list[Package]:
    """Everything installed that this process can import, by name; of one that is installed twice, what it imports."""
    packages: dict[str, Package] = {}
    for distribution in distributions():
        package = describe_package(distribution)
        if package is not None:
            packages.setdefault(re.sub(r"[-_.]+", "-", package.name).lower(), package)
    return [packages[name] for name in sorted(packages)]


def describe_package(distribution: Distribution) -> Package | None:
    """None for what has no name: the rest of a broken installation."""
    head = (distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or "").partition("\n\n")[0]  # the rest is its README
    fields = dict(reversed(HEADER.findall(head)))
    if "Name" not in fields:
        return None
    return Package(fields["Name"], fields.get("Version", ""), **read_origin(distribution.read_text("direct_url.json")))


def read_origin(direct_url: str | None) -> dict[str, Any]:
    """Fields of Package that direct_url.json (PEP 610) gives; of a folder also what its repository says."""
    try:
        origin = json.loads(direct_url or "null")
        url = str(origin["url"])
    except (ValueError, KeyError, TypeError):
        return {}
    fields: dict[str, Any] = {"url": strip_credentials(url), "commit": str((origin.get("vcs_info") or {}).get("commit_id", ""))}
    if "dir_info" in origin:
        code = find_code_version(Path(unquote(urlsplit(url).path)))
        editable = bool(origin["dir_info"].get("editable"))
        # What was copied from the folder at installation is not what the folder holds now.
        fields |= {"editable": editable, "commit": code.commit if editable else "", "changed": code.changed if editable else None}
    return fields


def strip_credentials(url: str) -> str:
    """Without passwords and tokens: over HTTP everything before the @, elsewhere what follows the user's name; and without a query."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    user = "" if "http" in parts.scheme else user.partition(":")[0]
    return urlunsplit(parts._replace(netloc=f"{user}@{host}" if user and at else host, query=""))


def describe_hardware() -> Hardware:
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return Hardware(
        system=platform.platform(),
        cpu=find_cpu_name(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,  # macOS has no affinity
        gpus=gpus,
        driver=find_driver_version() if gpus else "",
        cuda=str(torch.version.cuda or (f"ROCm {torch.version.hip}" if torch.version.hip else "")),
    )


def find_cpu_name() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.machine()


def find_driver_version() -> str:
    """Of NVIDIA's driver; empty where there is none, or nothing installed that could ask it."""
    try:
        import pynvml
    except ImportError:
        return ""
    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return ""
