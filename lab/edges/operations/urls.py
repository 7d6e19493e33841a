"""/admin/ and /metrics, for operators of the installation; in no team."""

from django.urls import URLPattern, URLResolver, path

from lab.edges.operations import log_admin, metrics_page, people_admin, work_admin
from lab.edges.operations.site import site

__all__ = ["log_admin", "people_admin", "urlpatterns", "work_admin"]

urlpatterns: list[URLPattern | URLResolver] = [path("admin/", site.urls), path("metrics", metrics_page.show_metrics, name="metrics")]
