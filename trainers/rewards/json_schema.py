"""Whether the answer is JSON, and fits a schema."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pydantic import model_validator

from trainers.contract.hyperparameters import param
from trainers.contract.problems import Contradiction, Problem
from trainers.rewards.answers import AnswerPlace, find_answer
from trainers.rewards.base import RewardFunction
from trainers.rewards.scores import UnusableRow

if TYPE_CHECKING:
    from trainers.tasks.base import Example

FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?```", re.DOTALL)
LARGEST = 1 << 20  # characters of an answer


class JsonSchemaParameters(AnswerPlace):
    json_schema: dict[str, Any] = param({}, "JSON schema, any draft from 4 on; empty: any JSON will do.", title="Schema")
    from_data: str = param(
        "", "Key of the row's data that holds its own schema, in place of this one.", title="Schema in data", advanced=True, max_length=100
    )
    fence: bool = param(True, "Of an answer with a ``` block, the last block is read.", title="Read code blocks")
    invalid: float = param(0.0, "Score of JSON that does not fit the schema.", title="Score without a fit", ge=-1000, le=1000)

    @model_validator(mode="after")
    def is_schema(self) -> JsonSchemaParameters:
        try:
            build_validator(self.json_schema)
        except ValueError as error:
            raise Contradiction(Problem("json_schema", None, f"is no JSON schema: {error}", "correct it", given=False)) from None
        return self


def build_validator(schema: Any) -> Any:
    """Patterns in it run in linear time, and nothing is fetched for a reference. Raises ValueError."""
    import jsonschema_rs

    def refuse_reference(address: str) -> Any:
        raise ValueError(f"{address} would have to be fetched")

    try:
        return jsonschema_rs.validator_for(schema, retriever=refuse_reference, pattern_options=jsonschema_rs.RegexOptions())
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        raise ValueError(str(error).partition("\n")[0]) from None


class JsonSchema(RewardFunction):
    name = "json-schema"
    title = "JSON schema"
    summary = "1 where the answer is JSON that fits a schema, 0 where it is no JSON."
    Parameters = JsonSchemaParameters

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        self.validator = build_validator(parameters.json_schema)

    def score(self, text: str, example: Example) -> float | None:
        chosen: JsonSchemaParameters = self.parameters
        answer = find_answer(text, example, chosen)
        if chosen.fence and answer and (blocks := FENCE.findall(answer)):
            answer = blocks[-1]
        validator = self.validator
        if chosen.from_data:
            if not isinstance(own := example.data.get(chosen.from_data), dict | bool):
                raise UnusableRow(f"the row's data has no schema under {chosen.from_data}")
            validator = build_validator(own)
        try:
            value = json.loads((answer or "")[:LARGEST], parse_constant=refuse_constant)
        except (ValueError, RecursionError):
            return 0.0
        try:
            return 1.0 if validator.is_valid(value) else chosen.invalid
        except ValueError as error:  # nested more deeply than the validator goes, or a number beyond its own
            raise UnusableRow(f"the answer cannot be checked: {error}") from None


def refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")
