"""The client that the lab hands out: a page with the wheel, which pip reads as one of links (``--find-links``), and the wheel. Both are public:
a machine that installs it has no session, and it holds nothing but published code.
"""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.views.decorators.http import require_safe

from lab.lib.client_wheel import PYTHON, ClientWheel, load_client_wheel
from lab.teams.accounts.addresses import build_absolute_url, outer_path

KEPT = "public, max-age=31536000, immutable"  # the name says the content


def build_client_url(wheel: ClientWheel) -> str:
    """At LAB_URL, for commands that people copy to other machines."""
    return build_absolute_url(outer_path("client-wheel", wheel.name))


@login_not_required
@require_safe
def show_client(request: HttpRequest) -> HttpResponse:
    wheel = load_client_wheel()
    return TemplateResponse(
        request, "api/client.html", {"wheel": wheel, "python": PYTHON, "url": build_client_url(wheel), "lab_url": settings.LAB_URL}
    )


@login_not_required
@require_safe
def download_client(request: HttpRequest, name: str) -> HttpResponse:
    """Only under the name of the wheel there is: an address that was copied before the lab was updated is refused, not answered with other code."""
    wheel = load_client_wheel()
    if name != wheel.name:
        raise Http404("This lab has another version of its client: see /client/.")
    headers = {"Cache-Control": KEPT, "Content-Disposition": f'attachment; filename="{wheel.name}"'}
    return HttpResponse(wheel.data, content_type="application/zip", headers=headers)
