"""The browser over rollouts of one run, several, or the whole team."""

from django.urls import path

from lab.browse import views

urlpatterns = [
    path("rollouts/", views.rollouts, name="rollouts"),
]
