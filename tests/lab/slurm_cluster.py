"""A Slurm cluster of one node for a test: slurmctld and slurmd of this machine, without munge, in a folder of their own.

Found on PATH, or below the folder that SLURM_ROOT names, where Debian's packages were unpacked and not installed:
``apt-get download slurmctld slurmd slurm-client slurm-wlm-basic-plugins libhwloc15 && for deb in *.deb; do dpkg -x $deb FOLDER; done``
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path

from lab.lib.processes import kill_tree, wait_for

SETTINGS = """
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=1024 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={controller_port}
SlurmdPort={node_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_min_interval=100000,batch_sched_delay=0
"""


@dataclass(frozen=True)
class SlurmCluster:
    """``environment``: with which Slurm's commands find it."""

    programs: dict[str, str]
    environment: dict[str, str]
    folder: Path

    def call(self, program: str, *arguments: str) -> str:
        """What the command says. Raises AssertionError where it fails."""
        done = subprocess.run([self.programs[program], *arguments], env=self.environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def list_jobs(self) -> dict[str, str]:
        """Number of each job that waits or runs → its state."""
        return dict(line.split() for line in self.call("squeue", "--noheader", "--format=%i %T").splitlines())


def find_slurm_programs() -> dict[str, str] | None:
    """Name → path; None where one is missing."""
    root = os.environ.get("SLURM_ROOT", "")
    path = os.pathsep.join([f"{root}/usr/bin", f"{root}/usr/sbin"]) if root else os.environ.get("PATH", "") + ":/usr/sbin"
    found = {}
    for name in ("slurmctld", "slurmd", "slurmstepd", "sbatch", "squeue", "scancel", "sinfo"):
        where = shutil.which(name, path=path) or shutil.which(f"{name}-wlm", path=path)  # so called in Debian's packages before they are configured
        if where is None:
            return None
        found[name] = where
    return found


@contextmanager
def run_slurm_cluster(programs: dict[str, str], folder: Path, cpus: int = 2) -> Iterator[SlurmCluster]:
    """Until the block ends; jobs that are left are killed."""
    (folder / "state").mkdir(parents=True)
    (folder / "spool").mkdir()
    settings = folder / "slurm.conf"
    root = os.environ.get("SLURM_ROOT", "")
    libraries = [f"{root}/usr/lib/x86_64-linux-gnu", f"{root}/usr/lib/x86_64-linux-gnu/slurm-wlm"] if root else []
    host = socket.gethostname().split(".")[0]
    controller_port, node_port = find_free_ports()
    text = SETTINGS.format(host=host, cpus=cpus, user=getuser(), folder=folder, controller_port=controller_port, node_port=node_port)
    settings.write_text(text + (f"PluginDir={libraries[1]}\n" if libraries else ""))
    environment = {**os.environ, "SLURM_CONF": str(settings), "LD_LIBRARY_PATH": os.pathsep.join(libraries)}
    cluster = SlurmCluster(programs, environment, folder)
    with ExitStack() as stack:
        for name, options in (("slurmctld", ["-D"]), ("slurmd", ["-D", "-d", programs["slurmstepd"]])):
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            daemon = subprocess.Popen([programs[name], *options], env=environment, stdout=log, stderr=log)
            stack.callback(end_daemon, daemon)
        assert wait_for(lambda: is_ready(cluster), 60), (folder / "slurmctld.log").read_text() + (folder / "slurmd.log").read_text()
        yield cluster


def is_ready(cluster: SlurmCluster) -> bool:
    try:
        return cluster.call("sinfo", "--noheader", "--format=%T") == "idle"
    except AssertionError:  # it does not listen yet
        return False


def end_daemon(daemon: subprocess.Popen[bytes]) -> None:
    kill_tree(daemon.pid)
    daemon.wait()


def find_free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]
