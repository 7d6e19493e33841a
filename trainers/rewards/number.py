"""Whether the answer's number is the reference's, within tolerances. Numbers are compared exactly: no digit is lost to floating point."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from trainers.contract.hyperparameters import param
from trainers.rewards.answers import AnswerPlace, find_answer, find_reference
from trainers.rewards.base import RewardFunction
from trainers.rewards.scores import UnusableRow

if TYPE_CHECKING:
    from trainers.tasks.base import Example

LONGEST = 1000  # digits of a number; longer ones are none
LARGEST_EXPONENT = 1000
PLAIN = {
    **dict.fromkeys(map(ord, "\u2212\u2010\u2011\ufe63\uff0d"), "-"),  # signs and digits of other forms of Unicode
    **{0xFF10 + digit: str(digit) for digit in range(10)},
    **dict.fromkeys(map(ord, "\u00a0\u2009\u202f"), "\u00a0"),
    0xFF0E: ".",
    0xFF0C: ",",
}
NUMBER = {
    "point": r"(?:[0-9]{1,3}(?:[,\u00a0][0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+",
    "comma": r"(?:[0-9]{1,3}(?:[.\u00a0][0-9]{3})+(?![0-9])|[0-9]+)(?:,[0-9]+)?|,[0-9]+",
}
PATTERNS = {
    decimal: re.compile(
        rf"(?<![\w.])(?P<sign>(?<![\w)])[-+])?[$€£]?(?P<whole>{body})(?:[eE](?P<exponent>[-+]?[0-9]{{1,6}})(?!\w))?"
        rf"(?:/(?P<below>[0-9]+)(?![\w/.]))?\s?(?P<unit>%|°?[^\W\d_]+)?"
    )
    for decimal, body in NUMBER.items()
}


class NumberParameters(AnswerPlace):
    which: Literal["last", "first", "only"] = param(
        "last", "Which number of the answer counts; “only” wants it to hold a single one.", title="Number"
    )
    absolute: float = param(0.0, "Largest difference that counts as equal.", title="Absolute tolerance", ge=0)
    relative: float = param(0.0, "Largest difference that counts as equal, as a share of the reference.", title="Relative tolerance", ge=0, le=1)
    decimal: Literal["point", "comma"] = param("point", "The decimal sign; the other one separates thousands.", title="Decimal sign", advanced=True)
    percent: Literal["sign", "hundredth"] = param("sign", "50 % is 50 with a unit, or a half.", title="Percent", advanced=True)
    units: Literal["ignored", "same"] = param("ignored", "Whether the word after the number has to be the reference's.", title="Units", advanced=True)


class Number(RewardFunction):
    name = "number"
    title = "Number"
    summary = "1 where the answer's number equals the reference's within the tolerances; exact for numbers of any length, with thousands separators."
    Parameters = NumberParameters

    def score(self, text: str, example: Example) -> float | None:
        chosen: NumberParameters = self.parameters
        wanted = find_numbers(find_reference(example, chosen), chosen)
        if not wanted:
            raise UnusableRow("the row's reference holds no number")
        found = find_numbers(find_answer(text, example, chosen) or "", chosen)
        if not found or (chosen.which == "only" and len(found) > 1):
            return 0.0
        value, unit = found[0] if chosen.which == "first" else found[-1]
        right, right_unit = wanted[-1]
        if chosen.units == "same" and unit != right_unit:
            return 0.0
        return float(abs(value - right) <= max(Fraction(chosen.absolute), Fraction(chosen.relative) * abs(right)))


def find_numbers(text: str, chosen: NumberParameters) -> list[tuple[Fraction, str]]:
    """(value, unit) of each number in a text, in order. NaN, infinity, 1/0 and numbers beyond the limits are none."""
    text = text.translate(PLAIN).replace("{,}", ",").replace("\\!", "").replace("\\,", "\u00a0").replace("\\%", "%")
    found = []
    for match in PATTERNS[chosen.decimal].finditer(text):
        value = read_value(match, chosen.decimal)
        unit = (match["unit"] or "").casefold()
        if value is None:
            continue
        if unit == "%" and chosen.percent == "hundredth":
            value, unit = value / 100, ""
        found.append((value, unit))
    return found


def read_value(match: re.Match[str], decimal: str) -> Fraction | None:
    whole, below = match["whole"], match["below"]
    exponent = int(match["exponent"] or 0)
    if len(whole) > LONGEST or abs(exponent) > LARGEST_EXPONENT or (below is not None and (len(below) > LONGEST or not int(below))):
        return None
    plain = whole.replace("\u00a0", "").replace("," if decimal == "point" else ".", "").replace(",", ".")
    value = Fraction(plain) * Fraction(10) ** exponent / (int(below) if below else 1)
    return -value if (match["sign"] or "").startswith("-") else value
