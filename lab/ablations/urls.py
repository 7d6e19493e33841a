"""Ablations: the list, a new one, one with its figures, and what can be done with it."""

from django.urls import path

from lab.ablations import views

urlpatterns = [
    path("", views.index, name="ablations"),
    path("new/", views.new, name="ablation-new"),
    path("<uuid:ablation_id>/", views.detail, name="ablation"),
    path("<uuid:ablation_id>/more/", views.more, name="ablation-more"),
    path("<uuid:ablation_id>/stop/", views.stop, name="ablation-stop"),
    path("<uuid:ablation_id>/delete/", views.delete, name="ablation-delete"),
]
