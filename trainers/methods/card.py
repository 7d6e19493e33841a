"""What a method declares about itself for the catalogue, the preflight and the run page. Imports no torch."""

from dataclasses import dataclass
from typing import Any, Literal

Fit = Literal["core", "variant", "needs-environment", "needs-modality", "out-of-field"]
Provenance = Literal["code", "paper", "abstract"]
Trainer = Literal["grpo", "rloo", "dpo", "kto", "orpo", "cpo", "online-dpo", "gkd", "sft", "reward", "procedure"]

# What at most one method of a recipe may decide.
Owned = Literal["advantages", "policy loss", "log ratio", "rollout", "curriculum", "prompt", "reference", "pair loss", "labels", "stage"]


@dataclass(frozen=True)
class Requirement:
    """What a method requires of the spec: ``field`` (dotted, inside the RunSpec) compared with ``value``.

    ``hard``: the run is refused; otherwise the user is warned. ``or_field``: the requirement is also met when this other field satisfies it.
    """

    field: str
    holds: Literal["at least", "at most", "equals", "differs from"]
    value: Any
    why: str
    hard: bool = True
    or_field: str = ""


@dataclass(frozen=True)
class Series:
    """One curve of a panel. ``metric`` is the full name of a logged metric: ``<method>/<name>``, or any other metric of the run (``entropy``)."""

    metric: str
    label: str = ""
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    """Declares a chart of the run page for a method, built from metrics only.

    ``lines``: the series as curves; with ``band`` (two metrics: low, high), the area between them is shaded. ``stack``: the series as stacked areas
    (shares of a whole). ``histogram``: one logged histogram (``Method.log_histogram``; ``series[0].metric`` is its name) as a heat map of step x
    value; ``low`` and ``high`` repeat the range it was logged with, which is not in the metrics; without them, the bins are numbered. ``phases``: the
    curves over a background shaded by the integer metric ``phase``, whose values are named by ``phase_names``.
    """

    title: str
    series: tuple[Series, ...]
    kind: Literal["lines", "stack", "histogram", "phases"] = "lines"
    unit: str = ""
    help: str = ""
    band: tuple[str, str] | None = None
    phase: str = ""
    phase_names: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Card:
    """``formula``: LaTeX, one display equation each. ``reading``: for a method known only from an abstract, which parts are our interpretation and
    why. ``departures``: differences from the code or paper, a short sentence each; *as published* is shown only if there are none. ``claim``: the
    quantity that the method is meant to change and its direction, for ablations: ``("entropy", "higher")``. ``base``: the base method its paper
    builds on (the parent it is compared with). ``parallel``: whether several processes can train with it; not where it needs the whole batch, of
    which each of them sees a share, and not before ``bench/ranks.py`` has compared them with one.
    """

    name: str
    title: str
    arxiv: str
    system: str
    base: str
    provenance: Provenance
    source: str
    fit: Fit
    idea: str
    formula: tuple[str, ...]
    reading: str = ""
    departures: tuple[str, ...] = ()
    claim: tuple[str, Literal["higher", "lower"]] = ("heldout/accuracy", "higher")
    parallel: bool = True
