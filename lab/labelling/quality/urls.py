"""Agreement, conflicts, review; humans against the reward."""

from django.urls import path

from lab.labelling.quality import agreement_page, conflicts, human_votes, item_page, review, sending_back

urlpatterns = [
    path("label/<id:queue_id>/quality/", agreement_page.show_queue_quality, name="queue-quality"),
    path("label/<id:queue_id>/quality/labeller/", agreement_page.change_labeller_status, name="queue-labeller"),
    path("label/<id:queue_id>/conflicts/", conflicts.show_conflicts, name="queue-conflicts"),
    path("label/<id:queue_id>/review/", review.show_review_page, name="queue-review"),
    path("label/<id:queue_id>/review/accept/", review.accept_all, name="queue-review-accept"),
    path("label/<id:queue_id>/review/return/", sending_back.send_back_many, name="queue-review-return"),
    path("label/items/<id:item_id>/", item_page.show_label_item, name="label-item"),
    path("label/items/<id:item_id>/adjudicate/", conflicts.adjudicate_item, name="label-adjudicate"),
    path("label/judgements/<id:judgement_id>/review/", review.judge_judgement, name="judgement-review"),
    path("runs/<uuid:run_id>/humans/", human_votes.run_humans, name="run-humans"),
]
