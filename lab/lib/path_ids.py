"""Ids in addresses: ``<id:queue_id>`` matches what a database column can hold, so that views look it up as it is. Everything else is no address."""

from __future__ import annotations

from django.urls import register_converter

from lab.lib.numbers import parse_whole_number


class IdConverter:
    regex = "[0-9]+"

    def to_python(self, value: str) -> int:
        if (number := parse_whole_number(value)) is None:
            raise ValueError(value[:50])
        return number

    def to_url(self, value: int) -> str:
        return str(value)


register_converter(IdConverter, "id")
