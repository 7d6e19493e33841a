"""What the browser of rollouts knows of clusters: its filter ``cluster:is:<clustering>.<cluster>``, for everything that takes a selection."""

from __future__ import annotations

from django.db.models.expressions import RawSQL

from lab.rollouts.browse.conditions import VALUED
from lab.rollouts.browse.fields import FIELDS, Field
from lab.teams.accounts.models import Team

NAME = "cluster"
PATTERN = r"[0-9]{1,18}\.[0-9]{1,4}"
HELP = "A clustering's number and its cluster's, such as 17.2; the clusters page links to each."
# Read as one set; the fence keeps the planner from asking rollout by rollout.
MEMBERS = """
SELECT member.rollout_id FROM embeddings_clustermember member JOIN embeddings_embeddingjob job ON job.id = member.job_id
WHERE job.team_id = %s AND job.id = %s AND member.cluster = %s OFFSET 0
"""


def format_cluster_filter(job: int, cluster: int) -> str:
    """As it stands in an address."""
    return f"{NAME}:is:{job}.{cluster}"


def query_cluster_members(team: Team, value: str) -> RawSQL:
    job, _, cluster = value.partition(".")
    return RawSQL(MEMBERS, [team.pk, int(job), int(cluster)])  # noqa: S611 a constant


def register_cluster_filter() -> None:
    FIELDS.register(NAME, Field(NAME, "Cluster", "text", help=HELP, operators=("is", "not"), pattern=PATTERN, sample="17.2"))
    VALUED.register(NAME, query_cluster_members)
