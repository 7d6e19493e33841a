"""Whether the answer is mathematically equal to the reference, by math-verify: LaTeX and plain expressions, fractions, sets, intervals, matrices."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Literal

from trainers.contract.hyperparameters import param
from trainers.rewards.answers import AnswerPlace, Place, find_answer, find_last_tag, find_reference
from trainers.rewards.base import RewardFunction
from trainers.rewards.line_child import ChildFailed, ChildTimedOut, LineChild
from trainers.rewards.scores import RewardFailed, UnusableRow

if TYPE_CHECKING:
    from trainers.tasks.base import Example

CHILD = "trainers.rewards.math_child"
SIGNS = ("$", "\\(", "\\[", "\\boxed", "\\begin{align", "\\begin{equation")
COMMAND = re.compile(r"\\(?:text|mathrm|operatorname)\s*\{[^{}]*\}|\\[A-Za-z]+")
WORD = re.compile(r"[A-Za-z]{2,}")
LONGEST = 20_000  # characters of an answer that are read, its end
PATIENCE = 1.0  # seconds past the limit until the child is killed; before that it says itself that it was late


class MathVerifyParameters(AnswerPlace):
    answer: Place = param(
        "whole",
        "Where the answer stands. The whole completion is searched: the last <answer> tag, else by math-verify "
        "the last \\boxed{}, “answer is”, the last formula.",
        title="Answer is",
    )
    seconds: float = param(3.0, "A comparison that takes longer is ended.", title="Time limit", unit="seconds", ge=0.1, le=60)
    late: Literal["wrong", "no opinion"] = param("wrong", "What a comparison that was ended counts as.", title="After the time limit")
    places: int = param(6, "Decimal places to which numbers are compared.", title="Decimal places", advanced=True, ge=0, le=15)
    strict: bool = param(True, "Names of variables matter, and a tuple is no set.", title="Strict", advanced=True)


class MathVerify(RewardFunction):
    name = "math-verify"
    title = "Mathematics (math-verify)"
    summary = "1 where the answer equals the reference as mathematics: LaTeX or plain expressions, fractions, sets, intervals, matrices."
    Parameters = MathVerifyParameters

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        self.child = LineChild(CHILD)

    def score(self, text: str, example: Example) -> float | None:
        chosen: MathVerifyParameters = self.parameters
        reference, answer = find_reference(example, chosen), find_answer(text, example, chosen)
        if answer is None:
            return 0.0
        if chosen.answer == "whole":  # math-verify takes no <answer>7</answer> for a 7, and a gate by tags asks for just that
            answer = (find_last_tag(answer) or "").strip() or answer
        asked = {"gold": mark_formula(reference), "answer": mark_formula(answer[-LONGEST:])}
        said = self.compare(asked | {"seconds": chosen.seconds, "places": chosen.places, "strict": chosen.strict})
        if said.get("late"):
            self.counted["timeouts"] += 1
            if chosen.late == "wrong":
                return 0.0
            raise UnusableRow(f"comparing took longer than {chosen.seconds:g} s")
        if said.get("error"):
            raise UnusableRow(str(said["error"]))
        if said.get("verdict") is None:
            raise UnusableRow("math-verify finds no mathematics in the row's reference")
        return float(said["verdict"])

    def compare(self, request: dict[str, Any]) -> dict[str, Any]:
        """Raises RewardFailed where no child starts."""
        try:
            answer: dict[str, Any] = json.loads(self.child.ask(json.dumps(request).encode() + b"\n", request["seconds"] + PATIENCE))
        except ChildTimedOut:
            return {"late": True}
        except ChildFailed as error:
            self.counted["failures"] += 1
            if "did not start" in str(error):
                raise RewardFailed(f"math-verify cannot be run on this machine: {error}") from error
            return {"error": str(error)}
        return answer

    def close(self) -> None:
        self.child.close()


def mark_formula(text: str) -> str:
    """A formula without the signs by which math-verify finds formulas gets them; what has words is searched as it is."""
    bare = not any(sign in text for sign in SIGNS) and not WORD.search(COMMAND.sub(" ", text))
    return f"${text}$" if bare else text
