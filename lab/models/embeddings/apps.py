from django.apps import AppConfig


class EmbeddingsConfig(AppConfig):
    name = "lab.models.embeddings"

    def ready(self) -> None:
        from lab.models.embeddings import browser_fields, departures
        from lab.models.embeddings.models import ClusterMember, Embedding
        from lab.watching.usage.storage_use import TABLES

        browser_fields.register_cluster_filter()
        departures.register_embedding_hooks()
        TABLES.register("embeddings", Embedding)
        TABLES.register("cluster members", ClusterMember)
