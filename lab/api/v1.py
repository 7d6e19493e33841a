"""All operations of the API, and their addresses."""

from __future__ import annotations

from django.urls import URLPattern, path

from lab.api.base import api, guarded
from lab.api.operations import (
    ablations,
    account,
    adjudication,
    audit,
    catalog,
    datasets,
    datasets_training,
    metrics,
    outside,
    policies,
    policies_promotion,
    policies_retention,
    quality,
    queues,
    recalls,
    review,
    rollouts,
    runs,
)
from lab.api.operations import annotations as said

NOUNS = (account, runs, ablations, metrics, rollouts, said, catalog, queues, adjudication, review, quality)
NOUNS += (datasets, datasets_training, recalls, policies, policies_promotion, policies_retention, outside, audit)
for router in (one.router for one in NOUNS):
    api.add_router("", router)

_patterns, APP, NAMESPACE = api.urls
operations: list[URLPattern] = [
    path(str(one.pattern), guarded(one.callback), name=one.name) for one in _patterns if isinstance(one, URLPattern) and one.name != "api-root"
]
