"""Addresses of the room."""

from django.urls import URLPattern, URLResolver, path

from lab.people import acts, entering, owning, pages

urlpatterns: list[URLPattern | URLResolver] = [
    # of the team in the address
    path("team/", pages.team, name="team"),
    path("team/role/", pages.role, name="team-role"),
    path("team/invite/", acts.invite, name="invite"),
    path("team/invitations/<int:invitation_id>/again/", acts.invitation_resend, name="invitation-resend"),
    path("team/invitations/<int:invitation_id>/withdraw/", acts.invitation_withdraw, name="invitation-withdraw"),
    path("team/requests/<int:request_id>/", acts.request_answer, name="request-answer"),
    path("team/members/<int:membership_id>/", pages.member, name="member"),
    path("team/members/<int:membership_id>/role/", acts.member_role, name="member-role"),
    path("team/members/<int:membership_id>/deactivate/", acts.member_deactivate, name="member-deactivate"),
    path("team/members/<int:membership_id>/reactivate/", acts.member_reactivate, name="member-reactivate"),
    path("team/members/<int:membership_id>/remove/", acts.member_remove, name="member-remove"),
    path("team/settings/", owning.settings, name="team-settings"),
    path("team/transfer/", owning.handing_over, name="team-transfer"),
    path("team/leave/", owning.leave, name="team-leave"),
    path("team/delete/", owning.delete, name="team-delete"),
    # of the person
    path("teams/", entering.teams, name="teams"),
    path("teams/new/", entering.team_new, name="team-new"),
    path("teams/join/", entering.join, name="team-join"),
    path("invitation/<str:token>/", entering.invitation, name="invited"),
]
