"""Account pages: those of django-allauth, less its unnamed addresses of old times, and the lab's own."""

from django.urls import include, path

from lab.accounts import single_sign_on_pages, views

urlpatterns = [
    path("health/", views.health, name="health"),
    path("setup/<str:token>/", views.setup, name="setup"),
    path("accounts/", include("allauth.account.urls")),
    path("accounts/2fa/", include("allauth.mfa.urls")),
    path("accounts/sessions/", include("allauth.usersessions.urls")),
    path("accounts/3rdparty/", include("allauth.socialaccount.urls")),
    path("accounts/oidc/<str:provider_id>/login/", single_sign_on_pages.leave, name="openid_connect_login"),
    path("accounts/oidc/<str:provider_id>/login/callback/", single_sign_on_pages.come_back, name="openid_connect_callback"),
    path("account/", views.account, name="account"),
    path("account/sessions/<int:session_id>/end/", views.session_end, name="account-session-end"),
]
