"""What a recipe is made of."""

from dataclasses import dataclass
from typing import Any

UNTRAINED = {"kind": "tiny", "cold_start": False}
COLD_STARTED = {"kind": "tiny", "cold_start": True}


@dataclass(frozen=True)
class RecipeStage:
    title: str
    spec: dict[str, Any]


@dataclass(frozen=True)
class Recipe:
    """``minutes``: about how long all stages take where ``needs`` says (``cpu``: two cores; ``gpu``: one data-centre GPU); 0: not measured.
    Recipes of one ``family`` differ in the ``model`` that they train and the memory of the ``gpu`` (GB) that they fit, and are offered as one."""

    name: str
    title: str
    summary: str
    minutes: int
    stages: tuple[RecipeStage, ...]
    needs: str = "cpu"
    family: str = ""
    model: str = ""
    gpu: int = 0
    how: str = ""  # full, LoRA or QLoRA
