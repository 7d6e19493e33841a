"""Queues, the page people label on, and what that page asks of the server."""

from django.urls import path

from lab.labels import seen
from lab.labels.pages import acts, new, queue, queues, settings, verbs, work

urlpatterns = [
    path("label/", queues.queues, name="queues"),
    path("label/new/", new.new, name="queue-new"),
    path("label/guidelines/", new.guidelines_preview, name="guidelines-preview"),
    path("label/<int:queue_id>/", queue.queue, name="queue"),
    path("label/<int:queue_id>/act/", acts.act, name="queue-act"),
    path("label/<int:queue_id>/people/", acts.change_people, name="queue-people"),
    path("label/<int:queue_id>/settings/", settings.settings, name="queue-settings"),
    path("label/<int:queue_id>/work/", work.work, name="queue-work"),
    path("label/<int:queue_id>/next/", verbs.next_claims, name="label-next"),
    path("label/<int:queue_id>/submit/", verbs.submit, name="label-submit"),
    path("label/<int:queue_id>/draft/", verbs.draft, name="label-draft"),
    path("label/<int:queue_id>/renew/", verbs.renew, name="label-renew"),
    path("label/<int:queue_id>/release/", verbs.release, name="label-release"),
    path("label/<int:queue_id>/undo/", verbs.undo, name="label-undo"),
    path("label/<int:queue_id>/mine/", verbs.mine, name="label-mine"),
    path("label/<int:queue_id>/revise/", verbs.revise, name="label-revise"),
    path("label/<int:queue_id>/keys/", verbs.keys, name="label-keys"),
    path("rollouts/<int:rollout_id>/labels/", seen.rollout_labels, name="rollout-labels"),
    path("runs/<uuid:run_id>/groups/<str:phase>/<int:step>/<int:group>/labels/", seen.group_labels, name="group-labels"),
]
