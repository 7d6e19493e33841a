"""Clusters of selections of rollouts, and rollouts like one."""

from django.urls import path

from lab.models.embeddings import similar_views, views

urlpatterns = [
    path("rollouts/clusters/", views.show_clusterings, name="clusters"),
    path("rollouts/clusters/<id:clustering_id>/", views.show_clustering, name="clustering"),
    path("rollouts/clusters/<id:clustering_id>/map.json", views.show_cluster_map, name="clustering-map"),
    path("rollouts/clusters/<id:clustering_id>/delete/", views.delete_clusters, name="clustering-delete"),
    path("rollouts/embeddings/<id:clustering_id>/stop/", views.stop_job, name="embedding-stop"),
    path("rollouts/embeddings/<id:clustering_id>/again/", views.retry_embedding, name="embedding-again"),
    path("rollouts/embedders/<id:embedder_id>/delete/", views.delete_embedder_vectors, name="embedder-delete"),
    path("rollouts/<id:rollout_id>/similar/", similar_views.show_similar_rollouts, name="similar"),
]
