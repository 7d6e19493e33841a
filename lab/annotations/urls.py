"""What people say about a rollout."""

from django.urls import path

from lab.annotations import views

urlpatterns = [
    path("rollouts/<int:rollout_id>/annotations/", views.annotations, name="annotations"),
]
