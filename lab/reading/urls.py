"""One rollout, one group, one prompt."""

from django.urls import path

from lab.reading import pages, trajectory

urlpatterns = [
    path("rollouts/<int:rollout_id>/", trajectory.rollout, name="rollout"),
    path("rollouts/<int:rollout_id>/packed/", trajectory.packed_tokens, name="rollout-packed"),
    path("runs/<uuid:run_id>/groups/<str:phase>/<int:step>/<int:group>/", pages.group, name="group"),
    path("prompts/<int:prompt_id>/", pages.prompt, name="prompt"),
]
