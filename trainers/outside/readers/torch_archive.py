"""What ``torch.save`` wrote, read without torch and without running anything: a pickle in a zip, whose classes become inert stand-ins.

A pickle can name any function to call. Here every name that it asks for is a stand-in that keeps what it is given and does nothing, save for ordered
dictionaries and tensors; tensors become lists. Format: pytorch/pytorch, ``torch/serialization.py`` (``_save``): ``<name>/data.pkl``, and the bytes
of storage ``<key>`` in ``<name>/data/<key>``.
"""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

from trainers.outside.readers.base import BrokenRow

PICKLE_BYTES = 1 << 30
MOST_NUMBERS = 1 << 24  # of one tensor
CODES = {
    "FloatStorage": "f",
    "DoubleStorage": "d",
    "HalfStorage": "e",
    "LongStorage": "q",
    "IntStorage": "i",
    "ShortStorage": "h",
    "CharStorage": "b",
}
CODES |= {"ByteStorage": "B", "BoolStorage": "?"}


class StandIn:
    """In the place of an object of a class that is not ours to make."""

    def __init__(self, *given: Any, **named: Any) -> None:
        self.given = given

    def __call__(self, *given: Any, **named: Any) -> StandIn:
        return StandIn(*given)

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, name: Any, value: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        pass

    def extend(self, values: Any) -> None:
        pass


class TensorUnpickler(pickle.Unpickler):
    """Raises BrokenRow for a tensor larger than MOST_NUMBERS."""

    def __init__(self, data: bytes, archive: zipfile.ZipFile, folder: str) -> None:
        super().__init__(io.BytesIO(data))
        self.archive, self.folder = archive, folder

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch._utils" and name.startswith("_rebuild_tensor"):
            return build_list_from_storage
        if module == "torch" and name in CODES:
            return name
        return type(name if name.isidentifier() else "Unknown", (StandIn,), {})

    def persistent_load(self, pid: Any) -> Any:
        """(code, bytes) of a storage."""
        kind, storage, key, _, count = pid
        if kind != "storage" or storage not in CODES or not str(key).isdigit():
            return StandIn()
        if count > MOST_NUMBERS:
            raise BrokenRow(f"a tensor of {count:,} numbers is too large")
        return CODES[storage], self.archive.read(f"{self.folder}/data/{key}")


def build_list_from_storage(storage: Any, offset: int = 0, size: Any = (), stride: Any = (), *rest: Any) -> Any:
    """A tensor of one dimension as a list; others stay stand-ins, no rollout needs them."""
    if not isinstance(storage, tuple) or len(size) != 1:
        return StandIn()
    code, data = storage
    count = size[0]
    width, step = struct.calcsize(code), stride[0] if stride else 1
    if not 0 <= count <= MOST_NUMBERS or (offset + max(0, count - 1) * step + 1) * width > len(data) + width * (not count):
        raise BrokenRow("a tensor is larger than its storage")
    return [struct.unpack_from(f"<{code}", data, (offset + place * step) * width)[0] for place in range(count)]


def load_torch_archive(path: Path) -> Any:
    """Raises BrokenRow for a file that is no such archive, or not yet: they are written at once, the directory of the zip last."""
    try:
        with zipfile.ZipFile(path) as archive:
            found = next((entry for entry in archive.infolist() if entry.filename.endswith("/data.pkl")), None)
            if found is None:
                raise BrokenRow("it holds no data.pkl")
            if found.file_size > PICKLE_BYTES:
                raise BrokenRow(f"its pickle is larger than {PICKLE_BYTES >> 30} GiB")
            folder = found.filename.removesuffix("/data.pkl")
            return TensorUnpickler(archive.read(found), archive, folder).load()
    except (zipfile.BadZipFile, EOFError, KeyError, struct.error) as error:
        raise BrokenRow(f"it is not a whole file of torch.save: {error}") from None
    except BrokenRow:
        raise
    except (pickle.UnpicklingError, TypeError, ValueError, AttributeError, IndexError, MemoryError, RecursionError) as error:
        raise BrokenRow(f"its pickle cannot be read: {error}") from None
