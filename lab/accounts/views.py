"""Health of the web process; the page behind the set-up link."""

from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.decorators import login_not_required
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters

from lab.accounts import setup_link
from lab.accounts.forms import SetupForm
from lab.accounts.models import User

BACKEND = "allauth.account.auth_backends.AuthenticationBackend"


@login_not_required
def health(request: HttpRequest) -> JsonResponse:
    """For load balancers and container health checks: answers only when the database does."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return JsonResponse({"status": "ok"})


@login_not_required
@never_cache
@sensitive_post_parameters("password")
def setup(request: HttpRequest, token: str) -> HttpResponse:
    """Makes the owner and the first team, signs the owner in, and goes on to the lab."""
    try:
        setup_link.check(token)
    except setup_link.SetupError as error:
        return unusable(request, error)
    form = SetupForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            user = setup_link.consume(token, **form.cleaned_data)
        except setup_link.SetupError as error:  # somebody else was faster
            return unusable(request, error)
        login(request, user, backend=BACKEND)
        messages.success(request, f"Welcome, {user}. The lab is yours.")
        return redirect("runs")
    return TemplateResponse(request, "account/setup.html", {"form": form}, status=422 if form.errors else 200)


def unusable(request: HttpRequest, error: setup_link.SetupError) -> HttpResponse:
    return TemplateResponse(request, "account/setup.html", {"problem": str(error), "has_people": User.objects.exists()}, status=410)
