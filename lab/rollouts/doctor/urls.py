"""What looks wrong with a run."""

from django.urls import path

from lab.rollouts.doctor import views

urlpatterns = [
    path("runs/<uuid:run_id>/doctor/", views.run_doctor, name="run-doctor"),
]
