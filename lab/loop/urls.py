"""Labels to runs and back: training from a version, matches, lineage, recall, live feeds."""

from django.urls import path

from lab.loop import feeding, lineage, recalling, training, wins

urlpatterns = [
    path("datasets/versions/<int:version_id>/train/", training.train, name="version-train"),
    path("runs/<uuid:run_id>/wins/", wins.run_wins, name="run-wins"),
    path("runs/<uuid:run_id>/match/", wins.run_match, name="run-match"),
    path("lineage/", lineage.lineage, name="lineage"),
    path("recalls/", recalling.recalls, name="recalls"),
    path("recalls/new/", recalling.recall, name="recall"),
    path("recalls/<int:recall_id>/undo/", recalling.undo_recall, name="recall-undo"),
    path("recalls/<int:recall_id>/rebuild/<int:version_id>/", recalling.rebuild, name="recall-rebuild"),
    path("runs/<uuid:run_id>/feeds/", feeding.run_feeds, name="run-feeds"),
    path("feeds/<int:feed_id>/stop/", feeding.stop_feed, name="feed-stop"),
]
