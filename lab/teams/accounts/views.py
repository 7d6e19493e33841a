"""Health of the web process; the page behind the set-up link; a person's account."""

from allauth.usersessions.models import UserSession
from django.contrib import messages
from django.contrib.auth import login, logout
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from lab.lib import readiness
from lab.lib.database_health import database_answers
from lab.lib.refusals import Refusal
from lab.teams.accounts import setup_link
from lab.teams.accounts.account_page import build_account_overview
from lab.teams.accounts.address_proof import send_proof_mail
from lab.teams.accounts.addresses import team_path
from lab.teams.accounts.demo_team import find_demo_team, list_people
from lab.teams.accounts.forms import NameForm, SetupForm
from lab.teams.accounts.models import User
from lab.teams.accounts.sessions import SessionRevocationAdapter

BACKEND = "allauth.account.auth_backends.AuthenticationBackend"


@login_not_required
def check_health(request: HttpRequest) -> JsonResponse:
    """For load balancers and container checks: this process answers, and the database answers it on a connection of its own within seconds.

    A pool of which every connection is in use is busy, not ill: starting the process again would only lose what it is doing.
    """
    if database_answers():
        return JsonResponse({"status": "ok"})
    return JsonResponse({"status": "the database does not answer"}, status=503, headers={"Retry-After": "5"})


@login_not_required
@never_cache
def check_liveness(request: HttpRequest) -> JsonResponse:
    """This process answers. Nothing else is asked: a restart would not bring a database back."""
    return JsonResponse({"status": "ok"})


@login_not_required
@never_cache
def check_readiness(request: HttpRequest) -> JsonResponse:
    """Whether requests may be sent here: 503 without the database or with one of another version; without Redis pages are ``degraded``, and 200."""
    found = readiness.probe.look()
    answer = {"status": found.status, "checks": found.checks}
    return JsonResponse(answer) if found.is_ready else JsonResponse(answer, status=503, headers={"Retry-After": "5"})


@login_not_required
@never_cache
@sensitive_post_parameters("password")
def set_up_lab(request: HttpRequest, token: str) -> HttpResponse:
    """Makes the owner and the first team, signs the owner in, and goes on to the lab."""
    try:
        setup_link.check_setup_link(token)
    except Refusal as error:
        return render_unusable_link(request, error)
    form = SetupForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            user = setup_link.consume_setup_link(token, **form.cleaned_data)
        except Refusal as error:  # somebody else was faster
            return render_unusable_link(request, error)
        login(request, user, backend=BACKEND)
        send_proof_mail(request, user)
        demo = find_demo_team()
        messages.success(request, f"Welcome, {user}. Your lab is ready." + (f" The demo's runs are in the team {demo}." if demo else ""))
        return redirect(team_path(demo, "runs") if demo else "runs")
    return TemplateResponse(request, "account/setup.html", {"form": form}, status=422 if form.errors else 200)


def render_unusable_link(request: HttpRequest, error: Refusal) -> HttpResponse:
    return TemplateResponse(request, "account/setup.html", {"problem": str(error), "has_people": list_people().exists()}, status=410)


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def show_account(request: HttpRequest) -> HttpResponse:
    """The way to everything that belongs to the person and not to a team; their name is changed here."""
    user = get_signed_in_user(request)
    form = NameForm(request.POST or None, initial={"name": user.get_full_name()})
    if request.method == "POST" and form.is_valid():
        form.save(user)
        messages.success(request, "Name saved.")
        return redirect("account")
    return TemplateResponse(
        request, "account/account.html", {**build_account_overview(user), "form": form, "room": "account"}, status=422 if form.errors else 200
    )


@require_POST
def session_end(request: HttpRequest, session_id: int) -> HttpResponseRedirect:
    """Signs the person out in one browser; in this one, that is signing out."""
    user = get_signed_in_user(request)
    session = UserSession.objects.filter(user=user, pk=session_id).first()
    if session is None:
        raise Http404("no such session of yours")
    if session.session_key == request.session.session_key:
        logout(request)
        return redirect("account_login")
    SessionRevocationAdapter().end_sessions([session])
    messages.success(request, "That browser was signed out.")
    return redirect("usersessions_list")


def get_signed_in_user(request: HttpRequest) -> User:
    """Whoever is signed in; the table lets nobody else to these pages."""
    assert isinstance(request.user, User)
    return request.user
