"""Policies: the list, one of them, aliases and gates, retention, the hub."""

from django.urls import path

from lab.policies.views import aliases, keeping, listing, one

urlpatterns = [
    path("policies/", listing.policies, name="policies"),
    path("policies/<int:checkpoint_id>/", one.policy, name="policy"),
    path("policies/<int:checkpoint_id>/files/", one.files, name="policy-files"),
    path("policies/<int:checkpoint_id>/download/", one.fetch, name="policy-download"),
    path("policies/<int:checkpoint_id>/delete/", one.delete, name="policy-delete"),
    path("policies/<int:checkpoint_id>/keep/", one.keep, name="policy-keep"),
    path("policies/<int:checkpoint_id>/propose/", one.propose, name="policy-propose"),
    path("policies/<int:checkpoint_id>/push/", keeping.push, name="policy-push"),
    # aliases and their gates
    path("policies/aliases/", aliases.aliases, name="aliases"),
    path("policies/aliases/gate/", aliases.gate, name="alias-gate"),
    path("policies/aliases/<int:alias_id>/back/", aliases.back, name="alias-back"),
    path("policies/aliases/<int:alias_id>/clear/", aliases.clear, name="alias-clear"),
    path("policies/proposals/<int:proposal_id>/", aliases.proposal, name="proposal"),
    path("policies/proposals/<int:proposal_id>/approve/", aliases.approve, name="proposal-approve"),
    path("policies/proposals/<int:proposal_id>/refuse/", aliases.refuse, name="proposal-refuse"),
    path("policies/proposals/<int:proposal_id>/withdraw/", aliases.withdraw, name="proposal-withdraw"),
    # what is kept, and copies on a hub
    path("policies/retention/", keeping.rules, name="retention"),
    path("policies/hub/", keeping.hub, name="policy-hub"),
    path("policies/hub/token/", keeping.token, name="policy-hub-token"),
    path("policies/pushes/<int:push_id>/", keeping.progress, name="push"),
    path("policies/pushes/<int:push_id>/cancel/", keeping.cancel, name="push-cancel"),
]
