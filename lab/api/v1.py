"""All operations of the API, and their addresses."""

from __future__ import annotations

from django.urls import URLPattern, path

from lab.api.base import api, guarded
from lab.api.operations import (
    ablations,
    account,
    adjudication,
    alerts,
    alerts_webhooks,
    audit,
    catalog,
    datasets,
    datasets_training,
    inbox,
    lineage,
    metrics,
    outside,
    policies,
    policies_promotion,
    policies_retention,
    projects,
    quality,
    queues,
    recalls,
    review,
    rollouts,
    runs,
    runs_doctor,
    runs_prompts,
    usage,
)
from lab.api.operations import annotations as said

NOUNS = (account, projects, runs, runs_doctor, ablations, metrics, rollouts, runs_prompts, said, catalog, queues, adjudication, review, quality)
NOUNS += (datasets, datasets_training, lineage, recalls, policies, policies_promotion, policies_retention, inbox, alerts, alerts_webhooks)
NOUNS += (outside, usage, audit)
for router in (one.router for one in NOUNS):
    api.add_router("", router)

_patterns, APP, NAMESPACE = api.urls
operations: list[URLPattern] = [
    path(str(one.pattern), guarded(one.callback), name=one.name) for one in _patterns if isinstance(one, URLPattern) and one.name != "api-root"
]
