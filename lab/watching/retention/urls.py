"""How long rollouts are kept."""

from django.urls import path

from lab.watching.retention import pages

urlpatterns = [path("usage/retention/", pages.edit_rollout_rule, name="rollout-retention")]
