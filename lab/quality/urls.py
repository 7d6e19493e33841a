"""Agreement, conflicts, review; humans against the reward."""

from django.urls import path

from lab.quality import humans, pages

urlpatterns = [
    path("label/<int:queue_id>/quality/", pages.quality, name="queue-quality"),
    path("label/<int:queue_id>/conflicts/", pages.conflicts, name="queue-conflicts"),
    path("label/<int:queue_id>/review/", pages.review, name="queue-review"),
    path("label/items/<int:item_id>/", pages.item, name="label-item"),
    path("label/items/<int:item_id>/adjudicate/", pages.adjudicate, name="label-adjudicate"),
    path("label/judgements/<int:judgement_id>/review/", pages.judge_judgement, name="judgement-review"),
    path("runs/<uuid:run_id>/humans/", humans.run_humans, name="run-humans"),
]
