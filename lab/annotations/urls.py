"""What people say about a rollout."""

from django.urls import path

from lab.annotations import views

urlpatterns = [
    path("rollouts/<int:rollout_id>/annotations/", views.panel, name="annotations"),
    path("rollouts/<int:rollout_id>/tags/", views.tag, name="tag"),
    path("rollouts/<int:rollout_id>/tags/<int:tag_id>/remove/", views.untag, name="untag"),
    path("rollouts/<int:rollout_id>/rating/", views.rate, name="rate"),
    path("rollouts/<int:rollout_id>/marks/", views.mark, name="mark"),
    path("rollouts/<int:rollout_id>/comments/", views.comment, name="comment"),
    path("comments/", views.comments, name="comments"),
    path("comments/<int:comment_id>/<str:verb>/", views.change, name="comment-change"),
]
