"""Tasks that a team makes in the browser."""

from django.urls import path

from lab.data.tasks import pages

urlpatterns = [
    path("tasks/", pages.list_tasks, name="tasks"),
    path("tasks/new/", pages.create_task, name="task-new"),
    path("tasks/preview/", pages.show_preview, name="task-preview"),
    path("tasks/fetches/<uuid:fetch_id>/", pages.show_fetch_state, name="task-fetch"),
    path("tasks/<id:task_id>/", pages.show_task, name="task"),
    path("tasks/<id:task_id>/edit/", pages.edit_task, name="task-edit"),
    path("tasks/<id:task_id>/diff/", pages.show_task_diff, name="task-diff"),
    path("tasks/<id:task_id>/delete/", pages.delete_task, name="task-delete"),
    path("tasks/<id:task_id>/restore/", pages.restore_task, name="task-restore"),
]
