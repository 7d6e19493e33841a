"""One rollout, one group, one prompt."""

from django.urls import path

from lab.rollouts.reading import groups, prompts, trajectory, tree_pages, turn_label_pages

urlpatterns = [
    path("rollouts/<id:rollout_id>/", trajectory.show_rollout_page, name="rollout"),
    path("rollouts/<id:rollout_id>/packed/", trajectory.packed_tokens, name="rollout-packed"),
    path("rollouts/<id:rollout_id>/tree/", tree_pages.show_rollout_tree, name="rollout-tree"),
    path("rollouts/<id:rollout_id>/turns/verdict/", turn_label_pages.save_turn_verdict, name="turn-verdict"),
    path("rollouts/<id:rollout_id>/turns/preference/", turn_label_pages.save_branch_preference, name="turn-preference"),
    path("rollouts/<id:rollout_id>/turns/members/", turn_label_pages.save_member_preference, name="turn-member-preference"),
    path("runs/<uuid:run_id>/groups/<str:phase>/<int:step>/<int:group>/", groups.show_rollout_group, name="group"),
    path("runs/<uuid:run_id>/groups/<str:phase>/<int:step>/<int:group>/tree/", tree_pages.show_group_tree, name="group-tree"),
    path("runs/<uuid:run_id>/groups/", groups.list_step_groups, name="groups"),
    path("prompts/", prompts.show_prompt_list, name="prompts"),
    path("prompts/<id:prompt_id>/", prompts.show_prompt_page, name="prompt"),
]
