"""All operations of the API, and their addresses."""

from __future__ import annotations

from django.urls import URLPattern, path

from lab.edges.api.base import api, guard_api_view
from lab.edges.api.operations import (
    ablations,
    account,
    adjudication,
    alerts,
    alerts_webhooks,
    audit,
    bin,
    branches,
    catalog,
    clusterings,
    datasets,
    datasets_import,
    datasets_tools,
    datasets_training,
    grids,
    inbox,
    invitations,
    lineage,
    metrics,
    outside,
    policies,
    policies_hub,
    policies_promotion,
    policies_retention,
    projects,
    quality,
    queues,
    queues_leading,
    recalls,
    reports,
    review,
    reward_functions,
    rollouts,
    rollouts_retention,
    run_queue,
    runs,
    runs_attempts,
    runs_bulk,
    runs_doctor,
    runs_edits,
    runs_prompts,
    samplings,
    saved_views,
    sweeps,
    tasks,
    usage,
    what_if,
)
from lab.edges.api.operations import annotations as said

READING = (metrics, rollouts, branches, clusterings, saved_views, what_if, runs_prompts, reward_functions, said)
EXPERIMENTS = (
    projects,
    runs,
    runs_bulk,
    runs_edits,
    run_queue,
    bin,
    runs_doctor,
    runs_attempts,
    ablations,
    grids,
    sweeps,
    *READING,
    reports,
    catalog,
)
LABELS = (
    queues,
    queues_leading,
    adjudication,
    review,
    quality,
    datasets_import,
    datasets,
    datasets_tools,
    datasets_training,
    tasks,
    lineage,
    recalls,
)
POLICIES = (policies, policies_hub, policies_promotion, policies_retention)
TEAM = (invitations, samplings, *POLICIES, inbox, alerts, alerts_webhooks, outside, usage, rollouts_retention, audit)
for router in (section.router for section in (account, *EXPERIMENTS, *LABELS, *TEAM)):
    api.add_router("", router)

_patterns, APP, NAMESPACE = api.urls
operations: list[URLPattern] = [
    path(str(pattern.pattern), guard_api_view(pattern.callback), name=pattern.name)
    for pattern in _patterns
    if isinstance(pattern, URLPattern) and pattern.name != "api-root"
]
