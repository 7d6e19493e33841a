"""Calendar months in UTC: what GPU-hours are counted by."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from django.utils import timezone

WRITTEN = re.compile(r"(20\d\d)-(0[1-9]|1[0-2])", re.ASCII)


@dataclass(frozen=True, order=True)
class Month:
    year: int
    month: int

    @classmethod
    def of(cls, moment: datetime) -> Month:
        in_utc = moment.astimezone(UTC)
        return cls(in_utc.year, in_utc.month)

    @classmethod
    def now(cls) -> Month:
        return cls.of(timezone.now())

    @classmethod
    def read(cls, text: str) -> Month | None:
        """``2026-11``; None for anything else."""
        match = WRITTEN.fullmatch(text)
        return cls(int(match[1]), int(match[2])) if match else None

    @property
    def start(self) -> datetime:
        return datetime(self.year, self.month, 1, tzinfo=UTC)

    @property
    def end(self) -> datetime:
        """The first moment that is no longer in it."""
        return self.next.start

    @property
    def next(self) -> Month:
        return Month(self.year + 1, 1) if self.month == 12 else Month(self.year, self.month + 1)

    @property
    def before(self) -> Month:
        return Month(self.year - 1, 12) if self.month == 1 else Month(self.year, self.month - 1)

    @property
    def title(self) -> str:
        return f"{self.start:%B} {self.year}"

    def __str__(self) -> str:
        return f"{self.year}-{self.month:02}"
