"""The inbox, alert rules of one's own and of the team, webhooks and what they delivered."""

from django.urls import path

from lab.alerts import inbox_pages as inbox
from lab.alerts import rule_pages as rules
from lab.alerts import webhook_pages as webhooks

urlpatterns = [
    path("inbox/", inbox.index, name="inbox"),
    path("inbox/read/", inbox.read_all, name="inbox-read-all"),
    path("inbox/unread/", inbox.undo, name="inbox-undo"),
    path("inbox/<uuid:notice_id>/open/", inbox.follow, name="inbox-open"),
    path("inbox/<uuid:notice_id>/read/", inbox.read, name="inbox-read"),
    path("alerts/", rules.mine, name="alerts"),
    path("alerts/new/", rules.new, name="alert-new"),
    path("alerts/preview/", rules.preview, name="alert-preview"),
    path("alerts/<int:rule_id>/", rules.change, name="alert"),
    path("alerts/<int:rule_id>/switch/", rules.switch, name="alert-switch"),
    path("alerts/<int:rule_id>/delete/", rules.delete, name="alert-delete"),
    path("alerts/team/", rules.team, name="team-alerts"),
    path("alerts/team/new/", rules.team_new, name="team-alert-new"),
    path("alerts/team/<int:team_rule_id>/", rules.team_change, name="team-alert"),
    path("alerts/team/<int:team_rule_id>/switch/", rules.team_switch, name="team-alert-switch"),
    path("alerts/team/<int:team_rule_id>/delete/", rules.team_delete, name="team-alert-delete"),
    path("alerts/webhooks/new/", webhooks.new, name="webhook-new"),
    path("alerts/webhooks/<int:webhook_id>/", webhooks.change, name="webhook"),
    path("alerts/webhooks/<int:webhook_id>/test/", webhooks.test, name="webhook-test"),
    path("alerts/webhooks/<int:webhook_id>/secret/", webhooks.rotate, name="webhook-secret"),
    path("alerts/webhooks/<int:webhook_id>/delete/", webhooks.delete, name="webhook-delete"),
    path("alerts/deliveries/", webhooks.deliveries, name="deliveries"),
    path("alerts/deliveries/<uuid:delivery_id>/again/", webhooks.again, name="delivery-again"),
]
