"""Addresses of the room."""

from django.urls import URLPattern, URLResolver, path

from lab.teams.people import entrance, member_acts, ownership, pages

urlpatterns: list[URLPattern | URLResolver] = [
    # of the team in the address
    path("team/", pages.show_team, name="team"),
    path("team/role/", pages.show_own_role, name="team-role"),
    path("team/invite/", member_acts.invite_member, name="invite"),
    path("team/invitations/<id:invitation_id>/again/", member_acts.invitation_resend, name="invitation-resend"),
    path("team/invitations/<id:invitation_id>/withdraw/", member_acts.invitation_withdraw, name="invitation-withdraw"),
    path("team/requests/<id:request_id>/", member_acts.request_answer, name="request-answer"),
    path("team/members/<id:membership_id>/", pages.show_member, name="member"),
    path("team/members/<id:membership_id>/role/", member_acts.member_role, name="member-role"),
    path("team/members/<id:membership_id>/deactivate/", member_acts.member_deactivate, name="member-deactivate"),
    path("team/members/<id:membership_id>/reactivate/", member_acts.member_reactivate, name="member-reactivate"),
    path("team/members/<id:membership_id>/remove/", member_acts.member_remove, name="member-remove"),
    path("team/settings/", ownership.edit_team_settings, name="team-settings"),
    path("team/transfer/", ownership.handing_over, name="team-transfer"),
    path("team/leave/", ownership.leave_current_team, name="team-leave"),
    path("team/delete/", ownership.delete_current_team, name="team-delete"),
    # of the person
    path("teams/", entrance.list_own_teams, name="teams"),
    path("teams/new/", entrance.team_new, name="team-new"),
    path("teams/join/", entrance.request_to_join, name="team-join"),
    path("invitation/<str:token>/", entrance.show_invitation, name="invited"),
]
