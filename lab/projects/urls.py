"""Projects: the list, one project, and what is done with them."""

from django.urls import path

from lab.projects import acts, pages

urlpatterns = [
    path("projects/", pages.index, name="projects"),
    path("projects/<int:project_id>/", pages.project, name="project"),
    path("projects/new/", acts.new, name="project-new"),
    path("projects/<int:project_id>/change/", acts.change, name="project-change"),
    path("projects/<int:project_id>/archive/", acts.archive, name="project-archive"),
    path("projects/<int:project_id>/restore/", acts.restore, name="project-restore"),
    path("projects/move/", acts.move, name="project-move"),
]
