"""What another method would have done with stored rollouts."""

from django.urls import path

from lab.replay import views

urlpatterns = [
    path("runs/<uuid:run_id>/what-if/", views.what_if, name="what-if"),
    path("what-if/<uuid:replay_id>/", views.replay, name="replay"),
    path("what-if/<uuid:replay_id>/again/", views.again, name="replay-again"),
    path("what-if/<uuid:replay_id>/tokens/", views.tokens, name="replay-tokens"),
]
