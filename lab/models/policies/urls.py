"""Policies: the list, one of them, aliases and gates, retention, the hub."""

from django.urls import path

from lab.models.policies.views import aliases, listing, policy_page, retention_rules

urlpatterns = [
    path("policies/", listing.list_policies, name="policies"),
    path("policies/<id:checkpoint_id>/", policy_page.show_policy, name="policy"),
    path("policies/<id:checkpoint_id>/files/", policy_page.show_policy_files, name="policy-files"),
    path("policies/<id:checkpoint_id>/download/", policy_page.download_policy, name="policy-download"),
    path("policies/<id:checkpoint_id>/delete/", policy_page.delete_policy, name="policy-delete"),
    path("policies/<id:checkpoint_id>/keep/", policy_page.keep_policy, name="policy-keep"),
    path("policies/<id:checkpoint_id>/propose/", policy_page.propose_policy_alias, name="policy-propose"),
    path("policies/<id:checkpoint_id>/push/", retention_rules.push_checkpoint, name="policy-push"),
    # aliases and their gates
    path("policies/aliases/", aliases.list_aliases, name="aliases"),
    path("policies/aliases/gate/", aliases.save_alias_gate, name="alias-gate"),
    path("policies/aliases/<id:alias_id>/back/", aliases.roll_back_alias, name="alias-back"),
    path("policies/aliases/<id:alias_id>/clear/", aliases.clear_alias, name="alias-clear"),
    path("policies/proposals/<id:proposal_id>/", aliases.show_proposal, name="proposal"),
    path("policies/proposals/<id:proposal_id>/approve/", aliases.approve_proposal, name="proposal-approve"),
    path("policies/proposals/<id:proposal_id>/refuse/", aliases.refuse_proposal, name="proposal-refuse"),
    path("policies/proposals/<id:proposal_id>/withdraw/", aliases.withdraw_proposal, name="proposal-withdraw"),
    # what is kept, and copies on a hub
    path("policies/retention/", retention_rules.edit_retention_rules, name="retention"),
    path("policies/hub/", retention_rules.show_hub_page, name="policy-hub"),
    path("policies/hub/token/", retention_rules.save_hub_token, name="policy-hub-token"),
    path("policies/pushes/<id:push_id>/", retention_rules.show_push_progress, name="push"),
    path("policies/pushes/<id:push_id>/cancel/", retention_rules.cancel_push, name="push-cancel"),
]
