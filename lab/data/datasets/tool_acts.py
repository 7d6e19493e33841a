"""A dataset tool applied to a version: always a version of another dataset, never a change. By whomever it is asked for."""

from __future__ import annotations

from dataclasses import replace

from django.db import transaction
from django.db.models import QuerySet

from lab.data.datasets.freezing import freeze_next_version
from lab.data.datasets.models import Dataset, Form, Source, Version
from lab.data.datasets.rules import Cleaning, DatasetRule, RuleError
from lab.data.datasets.tool_plan import KEY, ToolPlan
from lab.lib.refusals import InputRefusal, Problem
from lab.teams.accounts.models import Team, User
from lab.teams.audit.recording import record_audit_entry

LONGEST_NAME = 100


def list_tool_datasets(team: Team, form: str) -> QuerySet[Dataset]:
    """Datasets whose versions tools make, of a form; newest first."""
    return Dataset.objects.of(team).filter(source=Source.TOOL, form=form).order_by("-created_at", "-pk")


def apply_tool_to_version(
    source: Version, plan: ToolPlan, user: User | None, *, name: str = "", dataset: Dataset | None = None, notes: str = ""
) -> Version:
    """The next version of ``dataset``, else version 1 of a new one called ``name``; queued. Raises InputRefusal and RuleError."""
    team, name = source.dataset.team, name.replace("\0", "").strip()
    if dataset is not None and (dataset.source != Source.TOOL or dataset.form != plan.made_form):
        raise InputRefusal([Problem("dataset", "is not one of such rows that tools make", "choose another, or a new dataset")])
    if dataset is None and not name:
        raise InputRefusal([Problem("name", "is missing", "enter a name")])
    if len(name) > LONGEST_NAME:
        raise InputRefusal([Problem("name", f"has {len(name)} characters", f"use at most {LONGEST_NAME}")])
    with transaction.atomic():
        if dataset is None:
            fields = {"name": name, "form": plan.made_form, "source": Source.TOOL, "created_by": user}
            dataset = Dataset.objects.create(team=team, project=source.dataset.project, **fields)
        record_audit_entry("dataset.tool", dataset, tool=plan.name, version=source.pk, seed=plan.seed)
        return freeze_next_version(dataset, user, inherit_rule(source, plan.made_form), notes, **{KEY: plan.as_json()})


def inherit_rule(source: Version, form: Form) -> DatasetRule:
    """The source's rule, so that a recall of one of its settings finds what was made of it. Nothing of it is applied again."""
    try:
        rule = DatasetRule.read(source.rule)
        rule = replace(rule, form=form, cleaning=rule.cleaning if form == Form.PREFERENCE else Cleaning())
        rule.check()
    except RuleError:  # of another version of the lab, or one that rows of this form cannot have
        return DatasetRule(form=form)
    return rule
