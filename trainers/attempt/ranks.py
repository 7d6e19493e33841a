"""The processes that train one run together, as each of them sees the others: rank 0 is the first. Of a run in one process, nothing is sent.

torch elastic starts them (``rank_processes.py``). Those that train wait for each other ``SILENCE_SECONDS`` at most, so that one that hangs ends the
attempt; while the first does something alone (evaluates, samples pairs, asks people) the others wait for ``PATIENCE_SECONDS``.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
from accelerate import PartialState
from accelerate.state import AcceleratorState
from accelerate.utils import gather_object
from torch import Tensor
from torch import distributed as dist
from torch.distributed.fsdp import FSDPModule

T = TypeVar("T")

SILENCE_SECONDS = float(os.environ.get("LAB_RANK_SILENCE_SECONDS", "1800"))
PATIENCE_SECONDS = 2 * 86_400.0  # longer than people may be waited for

_patient: Any = None  # the group whose members wait for the first one


class RanksFailed(RuntimeError):
    """What ended the processes of a run, in the words of the attempt's end."""


def index() -> int:
    return int(os.environ.get("RANK", "0"))


def count() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    return index() == 0


def place_on_machine() -> int:
    """Number of the process on its machine, which is the number of its GPU."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def find_parent_pid() -> int:
    """The process that was asked to train: the one that started these, or the only one."""
    return os.getppid() if count() > 1 else os.getpid()


def join(on_cpu: bool) -> None:
    """Meets the other processes. Transformers and TRL find the group that is made here."""
    global _patient
    if count() == 1:
        return
    AcceleratorState._reset_state(reset_partial_state=True)  # of what this process did alone before it was one of several
    PartialState(cpu=on_cpu, timeout=timedelta(seconds=SILENCE_SECONDS))
    _patient = dist.new_group(backend="gloo", timeout=timedelta(seconds=PATIENCE_SECONDS))


def leave() -> None:
    global _patient
    if _patient is not None:
        _patient = None
        dist.destroy_process_group()


def is_joined() -> bool:
    return _patient is not None


@contextmanager
def gather_weights(model: Any) -> Iterator[None]:
    """All processes enter it together. Inside each has all weights of a model that is sharded (FSDP2), and may use it as often as it likes without
    the others: nothing is exchanged in its forward passes until all have left."""
    parts = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not parts:
        yield
        return
    model._get_fsdp_state()._lazy_init()  # what the parts share; PyTorch does it in the first forward pass of the whole, before that of a part
    for part in parts:
        part.set_reshard_after_forward(False, recurse=False)
        part.unshard()
    try:
        yield
    finally:
        wait_for_all()
        for part in parts:
            part.set_reshard_after_forward(True, recurse=False)
        model.reset_iter_state()  # and forgets these passes, which differ between processes: backward passes fetch parts in the order of them


def wait_for_all() -> None:
    if is_joined():
        PartialState().wait_for_everyone()


def any_of(flag: bool) -> bool:
    """Whether it is so in any process."""
    return any(all_of_list([flag]))


def all_of_list(items: Sequence[Any]) -> list[Any]:
    """The lists of all processes, one after the other."""
    return list(gather_object(list(items))) if is_joined() else list(items)


def all_of_columns(*columns: Sequence[Any]) -> list[list[Any]]:
    """Columns over the rows of this process -> over those of all processes, in one exchange: each costs some milliseconds, whatever it holds."""
    if not is_joined():
        return [list(column) for column in columns]
    return [list(column) for column in zip(*all_of_list(list(zip(*columns, strict=True))), strict=True)]


def all_of_tensor(values: Tensor) -> Tensor:
    """(B, ...) of each process, of the same shape, -> (N B, ...), without gradients."""
    if not is_joined():
        return values
    values = values.detach().contiguous()
    made = values.new_empty((count() * values.shape[0], *values.shape[1:]))
    dist.all_gather_into_tensor(made, values)
    return made


def gather_to_first(values: Tensor) -> Tensor | None:
    """(B, ...) of each process, of the same shape, -> (N B, ...) in the first one, None in the others."""
    if not is_joined():
        return values
    values = values.detach().contiguous()
    made = [torch.empty_like(values) for _ in range(count())] if is_first() else None
    dist.gather(values, made, dst=0)
    return torch.cat(made) if made is not None else None


def own_share(size: int) -> slice:
    """Of a batch of all processes, the ``size`` rows of this one."""
    return slice(index() * size, (index() + 1) * size)


def list_shares(size: int) -> list[slice]:
    """The rows of each process, ``size`` in each."""
    return [slice(index * size, (index + 1) * size) for index in range(count())]


def done_by_first(make: Callable[[], T]) -> T:
    """What ``make`` returns in the first process, in all of them; what it raises is raised in all."""
    if not is_joined():
        return make()
    told: list[Any] = [None, None]
    if is_first():
        try:
            told = [make(), None]
        except Exception as error:
            told = [None, error]
    dist.broadcast_object_list(told, src=0, group=_patient)
    if told[1] is not None:
        raise told[1]
    result: T = told[0]
    return result


def average_values(values: dict[str, float]) -> dict[str, float]:
    """Of each name the mean over the processes that know it."""
    if not is_joined():
        return values
    found: dict[str, list[float]] = {}
    for one in all_of_list([values]):
        for name, value in one.items():
            found.setdefault(name, []).append(value)
    return {name: sum(known) / len(known) for name, known in found.items()}
