"""Options of the world ``search``. All are off by default."""

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

OTHERS = ("old", "new", "best")  # an old friend is beside the point of who the friend is


class SearchConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    hits: int = Field(2, ge=1, le=4, title="Hits", description="Sentences that a search finds; each takes some 7 tokens of the context.")
    junk: float = Field(
        0.0, ge=0, le=1, title="Junk rate", description="Share of searches that find sentences beside the point only, the same for all of a group."
    )
    hops: int = Field(0, ge=0, le=2, title="Relations", description="Relations that a question chains; 0 = as many as the difficulty says.")
    distractors: int = Field(
        0, ge=0, le=len(OTHERS), title="Distractors", description="Sentences with nearly the same words beside each one that the answer needs."
    )
    ambiguous: float = Field(
        0.0,
        ge=0,
        le=1,
        title="Ambiguous share",
        description="Share of questions whose first relation holds of two people, told apart by something that takes a search of its own.",
    )

    failures: float = Field(
        0.0, ge=0, le=1, title="Failure rate", description="Share of searches that fail and find nothing, the same for all of a group."
    )
    missing: float = Field(
        0.0,
        ge=0,
        le=1,
        title="Missing sentences",
        description="Share of searches that lose one of the sentences they found, the same for all of a group.",
    )
    reader: bool = Field(
        False,
        title="Frozen reader",
        description="A frozen reader answers from what the searches found; the policy decides what to look for and ends with an empty answer.",
    )
    known: float = Field(
        0.0, ge=0, le=1, title="Known share", description="Share of the needed sentences that the frozen reader knows before any search."
    )

    thoughts: bool = Field(
        False,
        title="Thoughts",
        description="In demonstrations that search, every turn begins with a short thought that says what it is about.",
    )

    memorised: float = Field(
        0.0,
        ge=0,
        le=1,
        title="Facts in the weights",
        description="Share of the people whose facts are the same in every question; demonstrations that do not search are right about them.",
    )

    alone: bool = Field(
        False,
        title="Self-search",
        description="No engine answers: an episode is one turn, in which the policy writes the results of its searches itself.",
    )

    @field_validator("ambiguous")
    @classmethod
    def check_hits(cls, share: float, info: ValidationInfo) -> float:
        if share and info.data.get("hits", 2) < 2:
            raise ValueError("needs 2 hits at least: with one, a search never finds the second of two people")
        return share

    @field_validator("memorised")
    @classmethod
    def check_people(cls, share: float, info: ValidationInfo) -> float:
        if share and info.data.get("ambiguous"):
            raise ValueError("a relation that holds of two people is not the same in every question")
        return share

    @field_validator("known")
    @classmethod
    def check_reader(cls, share: float, info: ValidationInfo) -> float:
        if share and not info.data.get("reader"):
            raise ValueError("needs the frozen reader: nobody else knows sentences before a search")
        return share

    @field_validator("alone")
    @classmethod
    def check_engine(cls, alone: bool, info: ValidationInfo) -> bool:
        if alone and any(info.data.get(name) for name in ("junk", "failures", "missing", "reader")):
            raise ValueError("goes without junk, failures, missing sentences and the frozen reader: no engine answers that they could strike")
        return alone
