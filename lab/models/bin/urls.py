"""The bin: what is in it, the way in, back, and out."""

from django.urls import path

from lab.models.bin import views

urlpatterns = [
    path("bin/", views.show_bin, name="bin"),
    path("bin/put/", views.put_in_bin, name="bin-put"),
    path("bin/restore/", views.restore_from_bin, name="bin-restore"),
    path("bin/delete/", views.delete_from_bin, name="bin-delete"),
]
