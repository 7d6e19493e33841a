"""A file that somebody else appends lines to, read on from where the last look ended."""

from pathlib import Path


class NewLines:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0  # bytes that have been read

    def read(self) -> list[bytes]:
        """The lines since the last look, without their newlines; none while there is no file. A line counts once its newline is there."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self.offset += len(whole)
        return whole.splitlines()
