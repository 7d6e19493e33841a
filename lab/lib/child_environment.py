"""What a child process may know: the one filter of environments, which denies whatever is not named here.

Every place of the lab that starts a process calls ``environment_for`` with the kind of child it starts, or starts it inside ``restrict_environment``.
A variable that is not on the list of the kind stays behind, whatever it is called; of the names that are let through by a prefix, those that
are called a secret stay behind too, unless the kind names them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from lab.lib.secret_names import is_secret_name

NAMED_BY_OPERATOR = "LAB_TRAINER_ENV"

# What any program needs: where programs and files are, how to write text and time, which certificates to trust, how Python is to behave.
BASE_NAMES = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TERM", "COLUMNS", "LINES", "NO_COLOR", "LANG", "LANGUAGE", "TZ"),
        *("TMPDIR", "TMP", "TEMP", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "LD_PRELOAD"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    )
)
BASE_PREFIXES = ("LC_", "XDG_", "PYTHON", "MALLOC_")
# What torch and the libraries around it read: devices, threads, caches.
COMPUTING_NAMES = frozenset(
    (
        *("TOKENIZERS_PARALLELISM", "HUGGINGFACE_HUB_CACHE", "LAB_CACHE", "LAB_COLD_START_STEPS", "LAB_JUDGE_URL", "LAB_JUDGE_MODEL"),
        "LAB_RANK_SILENCE_SECONDS",
        "LAB_ACCELERATE_CONFIG",
    )
)
COMPUTING_PREFIXES = (
    *("CUDA_", "NVIDIA_", "NCCL_", "HIP_", "ROCR_", "TORCH", "PYTORCH_", "ATEN_", "TRITON_", "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_"),
    *("HF_", "TRANSFORMERS_", "TRL_", "ACCELERATE_", "NUMEXPR_"),
)
FETCHING_NAMES = frozenset(name for variable in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY") for name in (variable, variable.lower()))
HUB_TOKENS = frozenset(("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"))
SERVICES = frozenset(["SECRET_KEY", "DATABASE_URL", "REDIS_URL", "PGPASSWORD", "PGPASSFILE", "DJANGO_SETTINGS_MODULE", "PORT"])
# Credentials of the store (LAB_STORE), by the names that its libraries read. No trainer gets them: the supervisor uploads.
STORE_KEYS = frozenset(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS"))
STORE_PREFIXES = ("AWS_", "FSSPEC_", "AZURE_STORAGE_")
JUDGE_KEY = frozenset(("LAB_JUDGE_KEY",))


@dataclass(frozen=True)
class ChildKind:
    """What one kind of child gets besides the base. ``names`` may be secrets, what matches ``prefixes`` never is one. ``settings``: every setting
    of the lab; ``operators``: what the operator names in LAB_TRAINER_ENV.
    """

    names: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    settings: bool = False
    operators: bool = False


SERVICE = ChildKind()  # embedded PostgreSQL and Redis
DECODER = ChildKind()  # reads what people send; needs nothing of the lab
SAMPLER = ChildKind(COMPUTING_NAMES, COMPUTING_PREFIXES)  # writes completions with a policy that is on the disk
BRANCHER = ChildKind(COMPUTING_NAMES | JUDGE_KEY, COMPUTING_PREFIXES, operators=True)  # and scores them as the run does, which may ask the judge
CATALOGUE = ChildKind(COMPUTING_NAMES, COMPUTING_PREFIXES, operators=True)  # loads other packages' tasks
PREFLIGHT = ChildKind(COMPUTING_NAMES, COMPUTING_PREFIXES, operators=True)  # tries their reward functions, asks no network
# Asks the hub about a model, with the hub's token; runs nobody's code, which is why it is not the preflight itself.
MODEL_LOOKUP = ChildKind(COMPUTING_NAMES | FETCHING_NAMES | HUB_TOKENS, COMPUTING_PREFIXES)
FETCHER = ChildKind(COMPUTING_NAMES | FETCHING_NAMES | HUB_TOKENS, COMPUTING_PREFIXES)  # gets rows of a hub; runs nobody's code
REPLAY = ChildKind(COMPUTING_NAMES | FETCHING_NAMES | JUDGE_KEY, COMPUTING_PREFIXES, operators=True)  # a method may ask the judge
TRAINER = ChildKind(COMPUTING_NAMES | FETCHING_NAMES | JUDGE_KEY | HUB_TOKENS, COMPUTING_PREFIXES, operators=True)  # and loads policies of a hub
# Asks a scheduler for a machine: where it finds the scheduler, and what LAB_START names besides. No service of the lab: the worker has its own.
STARTER = ChildKind(FETCHING_NAMES | {"SLURM_CONF", "KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"})
# The lab's own web process and workers: services, settings, and what they hand on to their own children.
LAB = ChildKind(TRAINER.names | SERVICES | STORE_KEYS, (*COMPUTING_PREFIXES, *STORE_PREFIXES, "PG"), settings=True, operators=True)


def environment_for(kind: ChildKind, source: Mapping[str, str] | None = None, **more: str) -> dict[str, str]:
    """What a child of this kind gets of ``source`` (this process's environment), with ``more`` on top."""
    given = os.environ if source is None else source
    named = {name.strip() for name in given.get(NAMED_BY_OPERATOR, "").split(",")} if kind.operators else set()
    allowed = BASE_NAMES | kind.names | named
    prefixes = (*BASE_PREFIXES, *kind.prefixes)

    def may_pass(name: str) -> bool:
        if name in allowed or (kind.settings and name.startswith("LAB_")):
            return True
        return name.startswith(prefixes) and not is_secret_name(name)

    return {name: value for name, value in given.items() if may_pass(name)} | more


@contextmanager
def restrict_environment(kind: ChildKind) -> Iterator[None]:
    """Inside, what a package starts on our behalf inherits what the kind may have. For the start of services, before there are threads."""
    whole = dict(os.environ)
    hidden = whole.keys() - environment_for(kind).keys()
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update({name: whole[name] for name in hidden})
