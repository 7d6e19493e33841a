"""Clusters in a browser: from the table's button to the map, whose points open rollouts, and back to the table by a cluster's link."""

import re
from collections.abc import Callable

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from lab.models.embeddings import jobs
from lab.models.embeddings.models import Embedder, Embedding, EmbeddingJob, Source
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from tests.browser.training import add
from tests.lab.embeddings.planted import PLANTED
from tests.lab.supervisor.spools import make_run, rollout, started


@pytest.mark.feature(53)
def test_from_the_table_to_the_map_and_back(page: Page, team: Team, owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    run = make_run(team)
    said = [
        rollout(1 + sample % 3, group, sample, completion=" ".join(plan.words), reward=plan.reward)
        for group, plan in PLANTED.items()
        for sample in range(plan.count)
    ]
    add(run, [started(), *said])
    page.goto(f"/rollouts/?run={run.number}")
    page.get_by_role("link", name="Clusters").click()
    expect(page.locator(".cluster-selection")).to_contain_text("36 rollouts")
    page.get_by_label("Clusters optional").fill("3")
    page.get_by_role("button", name="Find clusters").click()
    expect(page.get_by_text("Waiting for a worker.")).to_be_visible()
    job = EmbeddingJob.across_teams.get()
    embedder = Embedder.objects.create(team=team, kind=Source.ENCODER, name="by hand", key="k", dimension=3)  # as if embedded before
    chance = np.random.default_rng(0)
    for row in Rollout.objects.filter(run=run):
        vector = np.eye(3)[row.group] + 0.05 * chance.normal(size=3)
        Embedding.objects.create(rollout=row, embedder=embedder, vector=(vector / np.linalg.norm(vector)).astype("<f2").tobytes())
    EmbeddingJob.across_teams.filter(pk=job.pk).update(embedder=embedder)
    jobs.run_embedding_job(job.pk)
    expect(page.locator(".cluster")).to_have_count(3)
    expect(page.locator(".cluster").first).to_contain_text("18")
    points = page.locator(".cluster-plot .points path.point")
    expect(points).to_have_count(36)
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1280, "height": 900})
    page.get_by_role("link", name="Open 12 in the table").click()
    expect(page.get_by_text(f"Cluster is {job.pk}.2")).to_be_visible()
    expect(page.locator("[data-row]")).to_have_count(12)
    page.locator("[data-row] input[name=id]").first.check()
    page.get_by_role("link", name="Similar to selected").click()
    expect(page.locator(".similar-table tbody tr")).to_have_count(20)
    page.get_by_role("link", name=re.compile("^Diff with rollout")).first.click()
    expect(page).to_have_url(re.compile("/compare/rollouts/"))
