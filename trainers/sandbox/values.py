"""Plain values as JSON and back, so that nothing but data passes between a program and whoever asks it.

JSON's own values stand for themselves; others are an object with one key that says what they are. What is decoded is made of Python's own types: a
value cannot bring an ``__eq__`` of its own along.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

LARGE = 1 << 63  # integers from here on are hexadecimal: Python refuses to read long decimal ones
Refer = Callable[[Any], Any]


class NotPlain(TypeError):
    pass


def refuse_object(value: Any) -> Any:
    raise NotPlain(f"a value of type {type(value).__name__} is not plain data")


def encode_value(value: Any, refer: Refer = refuse_object) -> Any:
    """``refer`` gives the JSON that stands for an object that is no plain data. Raises NotPlain, RecursionError."""
    kind = type(value)
    if value is None or kind in (bool, str, float):
        return value
    if isinstance(value, int) and not hasattr(value, "_value_"):  # members of enumerations are objects
        number = int(value)
        return number if -LARGE < number < LARGE else {"int": hex(number)}
    if isinstance(value, str) and not hasattr(value, "_value_"):
        return str.__str__(value)
    if isinstance(value, list):
        return [encode_value(item, refer) for item in value]
    if isinstance(value, dict):
        return {"dict": [[encode_value(key, refer), encode_value(item, refer)] for key, item in value.items()]}
    for name, base in (("tuple", tuple), ("set", set), ("frozenset", frozenset)):
        if isinstance(value, base):
            return {name: [encode_value(item, refer) for item in value]}
    if isinstance(value, bytes | bytearray):
        return {kind.__name__ if kind in (bytes, bytearray) else "bytes": base64.b64encode(bytes(value)).decode()}
    if kind is complex:
        return {"complex": [value.real, value.imag]}
    if kind is Fraction:
        return {"Fraction": [encode_value(value.numerator), encode_value(value.denominator)]}
    if kind is Decimal:
        return {"Decimal": str(value)}
    return refer(value)


def decode_value(data: Any, resolve: Refer = refuse_object) -> Any:
    """``resolve`` makes a value of what ``refer`` gave. Raises ValueError, TypeError, RecursionError for what ``encode_value`` never wrote."""
    if isinstance(data, list):
        return [decode_value(item, resolve) for item in data]
    if not isinstance(data, dict):
        return data
    [(name, held)] = data.items()
    if name == "dict":
        return {decode_value(key, resolve): decode_value(item, resolve) for key, item in held}
    if name in ("tuple", "set", "frozenset"):
        return {"tuple": tuple, "set": set, "frozenset": frozenset}[name](decode_value(item, resolve) for item in held)
    if name == "int":
        return int(str(held), 16)
    if name in ("bytes", "bytearray"):
        return {"bytes": bytes, "bytearray": bytearray}[name](base64.b64decode(str(held)))
    if name == "complex":
        return complex(float(held[0]), float(held[1]))
    if name == "Fraction":
        return Fraction(int(decode_value(held[0])), int(decode_value(held[1])))
    if name == "Decimal":
        return Decimal(str(held))
    return resolve(data)
