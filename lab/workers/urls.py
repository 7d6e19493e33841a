"""Workers."""

from django.urls import path

from lab.workers import views

urlpatterns = [path("workers/", views.index, name="workers")]
