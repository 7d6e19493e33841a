"""Queues, the page people label on, and what that page asks of the server."""

from django.urls import path

from lab.labelling.labels import rollout_labels
from lab.labelling.labels.pages import acts, new, queue, queues, settings, verbs, work

urlpatterns = [
    path("label/", queues.show_queue_list, name="queues"),
    path("label/new/", new.create_queue, name="queue-new"),
    path("label/guidelines/", new.guidelines_preview, name="guidelines-preview"),
    path("label/<id:queue_id>/", queue.show_queue, name="queue"),
    path("label/<id:queue_id>/act/", acts.run_queue_action, name="queue-act"),
    path("label/<id:queue_id>/people/", acts.change_people, name="queue-people"),
    path("label/<id:queue_id>/settings/", settings.edit_queue_settings, name="queue-settings"),
    path("label/<id:queue_id>/work/", work.show_labelling_page, name="queue-work"),
    path("label/<id:queue_id>/next/", verbs.next_claims, name="label-next"),
    path("label/<id:queue_id>/submit/", verbs.submit_label, name="label-submit"),
    path("label/<id:queue_id>/draft/", verbs.save_label_draft, name="label-draft"),
    path("label/<id:queue_id>/renew/", verbs.renew_label_claims, name="label-renew"),
    path("label/<id:queue_id>/release/", verbs.release_label_claims, name="label-release"),
    path("label/<id:queue_id>/undo/", verbs.undo_label, name="label-undo"),
    path("label/<id:queue_id>/mine/", verbs.show_own_label, name="label-mine"),
    path("label/<id:queue_id>/revise/", verbs.revise_label, name="label-revise"),
    path("label/<id:queue_id>/keys/", verbs.save_label_keys, name="label-keys"),
    path("rollouts/<id:rollout_id>/labels/", rollout_labels.rollout_labels, name="rollout-labels"),
    path("runs/<uuid:run_id>/groups/<str:phase>/<int:step>/<int:group>/labels/", rollout_labels.group_labels, name="group-labels"),
]
