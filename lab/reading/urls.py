"""One rollout, one group, one prompt."""

from django.urls import path

from lab.reading import groups, prompts, trajectory

urlpatterns = [
    path("rollouts/<int:rollout_id>/", trajectory.rollout, name="rollout"),
    path("rollouts/<int:rollout_id>/packed/", trajectory.packed_tokens, name="rollout-packed"),
    path("runs/<uuid:run_id>/groups/<str:phase>/<int:step>/<int:group>/", groups.group, name="group"),
    path("runs/<uuid:run_id>/groups/", groups.groups, name="groups"),
    path("prompts/", prompts.prompts, name="prompts"),
    path("prompts/<int:prompt_id>/", prompts.prompt, name="prompt"),
]
