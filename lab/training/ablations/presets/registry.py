"""The presets by name, and the form of a new grid that one fills in."""

from __future__ import annotations

import json

from django.http import Http404, QueryDict

from lab.training.ablations.factor_text import write_levels
from lab.training.ablations.factors import apply_changes
from lab.training.ablations.presets.demonstrations import BEHAVIOR_PRIMING, PRT
from lab.training.ablations.presets.judges import SHELF_LIFE
from lab.training.ablations.presets.languages import CROSSLINGUAL
from lab.training.ablations.presets.rewards import SHIELD
from lab.training.ablations.presets.search_traces import HOW_MUCH_BACKTRACK, TO_BACKTRACK_OR_NOT, VB_VS_VF
from lab.training.ablations.starts import recipe_spec

SHIPPED = (CROSSLINGUAL, SHELF_LIFE, HOW_MUCH_BACKTRACK, TO_BACKTRACK_OR_NOT, BEHAVIOR_PRIMING, PRT, VB_VS_VF, SHIELD)
PRESETS = {preset.name: preset for preset in SHIPPED}


def write_preset_form(name: str) -> QueryDict:
    """The form of a new grid as the preset fills it in. Raises Http404."""
    preset = PRESETS.get(name)
    if preset is None:
        raise Http404("there is no such preset")
    form = QueryDict(mutable=True)
    form["spec"] = json.dumps(apply_changes(recipe_spec(preset.recipe), preset.changes))
    form["name"], form["seeds"] = preset.name, str(preset.seeds)
    form["budget_kind"], form["budget_value"], form["budget_metric"] = preset.budget.kind, f"{preset.budget.value:g}", preset.budget.metric
    for place, factor in enumerate(preset.factors):
        form[f"factor.{place}.name"], form[f"factor.{place}.levels"] = factor.name, write_levels(factor.levels)
    return form
