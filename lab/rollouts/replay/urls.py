"""What another method would have done with stored rollouts."""

from django.urls import path

from lab.rollouts.replay import views

urlpatterns = [
    path("runs/<uuid:run_id>/what-if/", views.what_if, name="what-if"),
    path("what-if/<uuid:replay_id>/", views.show_replay, name="replay"),
    path("what-if/<uuid:replay_id>/again/", views.retry_replay, name="replay-again"),
    path("what-if/<uuid:replay_id>/tokens/", views.show_replay_tokens, name="replay-tokens"),
]
