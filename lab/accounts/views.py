"""Health of the web process; the page behind the set-up link; a person's account."""

from allauth.usersessions.models import UserSession
from django.contrib import messages
from django.contrib.auth import login, logout
from django.contrib.auth.decorators import login_not_required
from django.db import connection
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from lab.accounts import setup_link
from lab.accounts.account_page import overview
from lab.accounts.forms import NameForm, SetupForm
from lab.accounts.models import User
from lab.accounts.sessions import Revoking

MAX_ID = 2**63 - 1
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


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def account(request: HttpRequest) -> HttpResponse:
    """The way to everything that belongs to the person and not to a team; their name is changed here."""
    user = person(request)
    form = NameForm(request.POST or None, initial={"name": user.get_full_name()})
    if request.method == "POST" and form.is_valid():
        form.save(user)
        messages.success(request, "Your name is changed.")
        return redirect("account")
    return TemplateResponse(request, "account/account.html", {**overview(user), "form": form, "room": "account"}, status=422 if form.errors else 200)


@require_POST
def session_end(request: HttpRequest, session_id: int) -> HttpResponseRedirect:
    """Signs the person out in one browser; in this one, that is signing out."""
    user = person(request)
    found = UserSession.objects.filter(user=user, pk=session_id).first() if session_id <= MAX_ID else None
    if found is None:
        raise Http404("no such session of yours")
    if found.session_key == request.session.session_key:
        logout(request)
        return redirect("account_login")
    Revoking().end_sessions([found])
    messages.success(request, "That browser is signed out.")
    return redirect("usersessions_list")


def person(request: HttpRequest) -> User:
    """Whoever is signed in; the table lets nobody else to these pages."""
    assert isinstance(request.user, User)
    return request.user
