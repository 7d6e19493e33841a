"""What people say about a rollout."""

from django.urls import path

from lab.rollouts.annotations import views

urlpatterns = [
    path("rollouts/<id:rollout_id>/annotations/", views.show_annotation_panel, name="annotations"),
    path("rollouts/<id:rollout_id>/tags/", views.add_rollout_tag, name="tag"),
    path("rollouts/<id:rollout_id>/tags/<id:tag_id>/remove/", views.remove_rollout_tag, name="untag"),
    path("rollouts/<id:rollout_id>/rating/", views.save_rollout_rating, name="rate"),
    path("rollouts/<id:rollout_id>/marks/", views.save_step_mark, name="mark"),
    path("rollouts/<id:rollout_id>/comments/", views.save_rollout_comment, name="comment"),
    path("comments/", views.list_team_comments, name="comments"),
    path("comments/<id:comment_id>/<str:verb>/", views.change_comment, name="comment-change"),
]
