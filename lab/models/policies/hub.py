"""Uploading a policy to a hub repository with huggingface_hub: the files one after the other, then one commit, so that a repository is never half.

Files go as streams, not as paths: what is read is counted, and an upload that was cancelled ends at its next read.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from typing import Any

from lab.models.policies.checkpoint_paths import FilesMissing
from lab.models.policies.download import ArchivePart, as_stream, parts_of
from lab.models.policies.hub_token import redact_secret
from lab.training.runs.models import Checkpoint

Tick = Callable[[int, str], None]  # bytes read so far, what is being done; raises PushCancelled


class PushCancelled(Exception):
    """Somebody does not want it any more."""


class HubError(Exception):
    """In words for the page, without the secret."""


class MonitoredStream(io.BufferedReader):
    """A stream that tells how much was read of it."""

    def __init__(self, raw: Any, read: Callable[[int], None]) -> None:
        super().__init__(raw)
        self._told = read

    def read(self, size: int | None = -1, /) -> bytes:
        piece = super().read(size)
        self._told(len(piece))
        return piece


class ByteCounter:
    def __init__(self, tick: Tick) -> None:
        self.tick, self.done, self.doing = tick, 0, ""

    def begin(self, doing: str) -> None:
        self.doing = doing
        self.tick(self.done, doing)

    def add(self, count: int) -> None:
        self.done += count
        self.tick(self.done, self.doing)


def count_upload_bytes(parts: list[ArchivePart]) -> int:
    """Bytes read for an upload: every file once for its hash and once for sending."""
    return 2 * sum(part.size for part in parts)


def upload_policy(checkpoint: Checkpoint, repository: str, private: bool, secret: str, url: str, card: str, tick: Tick) -> str:
    """Returns the address of the commit. Raises HubError, PushCancelled, FilesMissing."""
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.utils.logging import set_verbosity
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    set_verbosity(logging.ERROR)  # it warns of every stream that it is not a path
    api = HfApi(endpoint=url, token=secret, library_name="policy-lab")
    counter = ByteCounter(tick)
    streams: list[MonitoredStream] = []
    try:
        counter.begin("creating the repository")
        api.create_repo(repository, private=private, exist_ok=True)
        if private and not api.repo_info(repository).private:  # it was there before
            raise HubError(f"{repository} exists and is public; push to another repository, or allow it to be public.")
        operations = []
        for part in parts_of(checkpoint):
            name = part.file.name
            counter.begin(f"reading {name}")
            stream = MonitoredStream(as_stream(checkpoint, part), counter.add)
            streams.append(stream)
            operation = CommitOperationAdd(path_in_repo=name, path_or_fileobj=stream)
            counter.begin(f"sending {name}")
            api.preupload_lfs_files(repository, [operation], free_memory=False, num_threads=1)
            operations.append(operation)
        operations.append(CommitOperationAdd(path_in_repo="README.md", path_or_fileobj=card.encode()))
        counter.begin("committing")
        commit = api.create_commit(
            repository, operations, commit_message=f"Policy of run #{checkpoint.run.number}, step {checkpoint.step}", num_threads=1
        )
    except (PushCancelled, HubError, FilesMissing):
        raise
    except Exception as error:  # whatever the library raises; its text may hold what was sent
        raise HubError(words_for(error, repository, secret)) from None
    finally:
        for stream in streams:
            stream.close()
    commit_url = str(commit.commit_url)
    return commit_url if commit_url.startswith(f"{url}/") else f"{url}/{repository}"


def words_for(error: Exception, repository: str, secret: str) -> str:
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled, RepositoryNotFoundError

    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, OfflineModeIsEnabled):
        return "The worker is offline (HF_HUB_OFFLINE is set). Its operator can change this."
    if status == 401:
        return "The hub rejected the token. Store a new one."
    if status == 403:
        return f"The token may not write to {repository}. It needs write permission for that owner's repositories."
    if isinstance(error, RepositoryNotFoundError):
        return f"{repository} does not exist on the hub, or the token has no access to it."
    if isinstance(error, HfHubHTTPError):
        return redact_secret(f"The hub answered {status or 'with an error'}: {one_line(getattr(error, 'server_message', None) or '')}", secret)
    if isinstance(error, OSError) or any(kind.__name__ == "TransportError" for kind in type(error).__mro__):  # of the library's HTTP client
        return "The hub cannot be reached from the worker. Check its network and push again."
    return redact_secret(f"The upload failed ({type(error).__name__}): {one_line(str(error))}", secret)


def one_line(text: str) -> str:
    return " ".join(text.split())[:200]
