from django.urls import path

from lab.watching.queue import pages

urlpatterns = [
    path("queue/", pages.show_queue, name="run-queue"),
    path("queue/change/", pages.change_queue, name="run-queue-change"),
]
