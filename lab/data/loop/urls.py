"""Labels to runs and back: training from a version, matches, lineage, recall, live feeds."""

from django.urls import path

from lab.data.loop import feeds, lineage, recall_pages, train_page, win_panel

urlpatterns = [
    path("datasets/versions/<id:version_id>/train/", train_page.train_on_version, name="version-train"),
    path("runs/<uuid:run_id>/wins/", win_panel.run_wins, name="run-wins"),
    path("runs/<uuid:run_id>/match/", win_panel.run_match, name="run-match"),
    path("lineage/", lineage.show_lineage, name="lineage"),
    path("recalls/", recall_pages.show_recalls, name="recalls"),
    path("recalls/new/", recall_pages.recall_labels, name="recall"),
    path("recalls/<id:recall_id>/undo/", recall_pages.undo_recall, name="recall-undo"),
    path("recalls/<id:recall_id>/rebuild/<id:version_id>/", recall_pages.rebuild_recalled_version, name="recall-rebuild"),
    path("runs/<uuid:run_id>/feeds/", feeds.run_feeds, name="run-feeds"),
    path("feeds/<id:feed_id>/stop/", feeds.stop_feed, name="feed-stop"),
]
