from django.apps import AppConfig


class EmbeddingsConfig(AppConfig):
    name = "lab.models.embeddings"

    def ready(self) -> None:
        from lab.models.embeddings import browser_fields
        from lab.models.embeddings.kept_rollouts import register_clustered_rollouts
        from lab.models.embeddings.models import ClusterMember, Embedding, EmbeddingJob, JobStatus
        from lab.teams.people.departures import register_waiting_work
        from lab.watching.usage.storage_use import TABLES

        browser_fields.register_cluster_filter()
        register_waiting_work("embeddings", EmbeddingJob, "embedding job", queued=JobStatus.QUEUED, ended=JobStatus.STOPPED, verb="stopped")
        TABLES.register("embeddings", Embedding)
        TABLES.register("cluster members", ClusterMember)
        register_clustered_rollouts()
