"""Account pages: those of django-allauth, less its unnamed addresses of old times, and the lab's own."""

from allauth.urls import build_provider_urlpatterns
from django.urls import include, path

from lab.accounts import views

urlpatterns = [
    path("health/", views.health, name="health"),
    path("setup/<str:token>/", views.setup, name="setup"),
    path("accounts/", include("allauth.account.urls")),
    path("accounts/2fa/", include("allauth.mfa.urls")),
    path("accounts/sessions/", include("allauth.usersessions.urls")),
    path("accounts/3rdparty/", include("allauth.socialaccount.urls")),
    path("accounts/", include(build_provider_urlpatterns())),
    path("account/", views.account, name="account"),
    path("account/sessions/<int:session_id>/end/", views.session_end, name="account-session-end"),
]
