"""Projects: the list, one project, and what is done with them."""

from django.urls import path

from lab.data.projects import buttons, pages

urlpatterns = [
    path("projects/", pages.list_projects, name="projects"),
    path("projects/<id:project_id>/", pages.show_project, name="project"),
    path("projects/new/", buttons.create_project, name="project-new"),
    path("projects/<id:project_id>/change/", buttons.edit_project, name="project-change"),
    path("projects/<id:project_id>/archive/", buttons.archive_project, name="project-archive"),
    path("projects/<id:project_id>/restore/", buttons.restore_project, name="project-restore"),
    path("projects/move/", buttons.move_to_project, name="project-move"),
]
