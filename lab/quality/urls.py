"""Agreement, conflicts, review; humans against the reward."""

from django.urls import path

from lab.quality import agreement_page, conflicts, humans, item_page, reviewing

urlpatterns = [
    path("label/<int:queue_id>/quality/", agreement_page.quality, name="queue-quality"),
    path("label/<int:queue_id>/quality/labeller/", agreement_page.labeller, name="queue-labeller"),
    path("label/<int:queue_id>/conflicts/", conflicts.conflicts, name="queue-conflicts"),
    path("label/<int:queue_id>/review/", reviewing.review, name="queue-review"),
    path("label/<int:queue_id>/review/accept/", reviewing.accept_all, name="queue-review-accept"),
    path("label/items/<int:item_id>/", item_page.item, name="label-item"),
    path("label/items/<int:item_id>/adjudicate/", conflicts.adjudicate, name="label-adjudicate"),
    path("label/judgements/<int:judgement_id>/review/", reviewing.judge_judgement, name="judgement-review"),
    path("runs/<uuid:run_id>/humans/", humans.run_humans, name="run-humans"),
]
