"""The team's reward functions."""

from django.urls import path

from lab.training.rewards import pages

urlpatterns = [
    path("rewards/", pages.list_functions, name="rewards"),
    path("rewards/new/", pages.create_function, name="reward-new"),
    path("rewards/<id:reward_id>/", pages.show_function, name="reward"),
    path("rewards/<id:reward_id>/edit/", pages.edit_function, name="reward-edit"),
    path("rewards/<id:reward_id>/diff/", pages.show_diff, name="reward-diff"),
    path("rewards/<id:reward_id>/archive/", pages.archive_function, name="reward-archive"),
    path("rewards/<id:reward_id>/restore/", pages.restore_function, name="reward-restore"),
]
