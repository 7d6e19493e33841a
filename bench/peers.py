"""Other trackers, each in an environment of its own that the benches make: pinned versions in a folder of the cache, never in this project's.

An environment sees this project's packages (torch, TRL) through a ``.pth`` file behind its own, so that only what the peer needs besides is
installed; nothing is ever installed into this project's.
"""

from __future__ import annotations

import hashlib
import os
import site
import subprocess
import sys
from pathlib import Path

PINS = {
    "mlflow": ("mlflow==3.17.2",),
    "trackio": ("trackio==0.43.0",),
    "aim": ("aim==3.29.1",),
    "wandb": ("wandb==0.31.0",),
    "tensorboard": ("tensorboard==2.21.0",),
}
OFFLINE = {  # nobody is told anything, and nothing is sampled beside what is measured
    "HF_HUB_OFFLINE": "1",
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "WANDB_DISABLE_GIT": "true",
    "WANDB_DISABLE_CODE": "true",
    "WANDB__DISABLE_STATS": "true",
    "WANDB_CONSOLE": "off",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "TRACKIO_AUTO_LOG_CPU": "false",
    "AIM_TELEMETRY": "off",
}


class PeerError(RuntimeError):
    """The environment of a peer could not be made; the message ends with what pip said."""


def find_peer_python(peer: str) -> Path:
    """The interpreter of the peer's environment, which is made where it is not there yet. Raises PeerError."""
    cache = Path(os.environ.get("LAB_CACHE") or Path.home() / ".cache" / "policy-lab")
    ours = [path for path in site.getsitepackages() if path.startswith(sys.prefix)]
    words = [*PINS[peer], sys.version, *ours]
    folder = cache / "peers" / f"{peer}-{hashlib.sha256(repr(words).encode()).hexdigest()[:12]}"
    python, ready = folder / "bin" / "python", folder / "ready"
    if ready.exists():
        return python
    print(f"making the environment of {peer} in {folder} …", file=sys.stderr, flush=True)
    run_quietly(peer, [sys.executable, "-m", "venv", "--clear", str(folder)])
    own = next(folder.glob("lib/python*/site-packages"))
    (own / "policy_lab_packages.pth").write_text("\n".join(ours) + "\n")
    run_quietly(peer, [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PINS[peer]])
    ready.touch()
    return python


def run_quietly(peer: str, command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise PeerError(f"the environment of {peer} could not be made: {' '.join(command)}\n{done.stdout[-3000:]}")
