"""The inbox, alert rules of one's own and of the team, webhooks and what they delivered."""

from django.urls import path

from lab.watching.alerts import inbox_pages as inbox
from lab.watching.alerts import rule_pages as rules
from lab.watching.alerts import webhook_pages as webhooks

urlpatterns = [
    path("inbox/", inbox.show_inbox, name="inbox"),
    path("inbox/read/", inbox.read_all, name="inbox-read-all"),
    path("inbox/unread/", inbox.undo_mark_all_read, name="inbox-undo"),
    path("inbox/<uuid:notice_id>/open/", inbox.open_notice, name="inbox-open"),
    path("inbox/<uuid:notice_id>/read/", inbox.mark_notice_read, name="inbox-read"),
    path("alerts/", rules.list_own_rules, name="alerts"),
    path("alerts/new/", rules.create_own_rule, name="alert-new"),
    path("alerts/preview/", rules.show_rule_preview, name="alert-preview"),
    path("alerts/<id:rule_id>/", rules.edit_own_rule, name="alert"),
    path("alerts/<id:rule_id>/switch/", rules.switch_own_rule, name="alert-switch"),
    path("alerts/<id:rule_id>/delete/", rules.delete_own_rule, name="alert-delete"),
    path("alerts/team/", rules.list_team_rules, name="team-alerts"),
    path("alerts/team/new/", rules.team_new, name="team-alert-new"),
    path("alerts/team/<id:team_rule_id>/", rules.team_change, name="team-alert"),
    path("alerts/team/<id:team_rule_id>/switch/", rules.team_switch, name="team-alert-switch"),
    path("alerts/team/<id:team_rule_id>/delete/", rules.team_delete, name="team-alert-delete"),
    path("alerts/webhooks/new/", webhooks.create_webhook, name="webhook-new"),
    path("alerts/webhooks/<id:webhook_id>/", webhooks.edit_webhook, name="webhook"),
    path("alerts/webhooks/<id:webhook_id>/test/", webhooks.send_test_delivery, name="webhook-test"),
    path("alerts/webhooks/<id:webhook_id>/secret/", webhooks.rotate_webhook_secret, name="webhook-secret"),
    path("alerts/webhooks/<id:webhook_id>/delete/", webhooks.delete_webhook, name="webhook-delete"),
    path("alerts/deliveries/", webhooks.list_deliveries, name="deliveries"),
    path("alerts/deliveries/<uuid:delivery_id>/again/", webhooks.resend_delivery, name="delivery-again"),
]
