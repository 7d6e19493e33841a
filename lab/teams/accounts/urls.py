"""Account pages: those of django-allauth, less its unnamed addresses of old times, and the lab's own."""

from django.urls import include, path, re_path

from lab.teams.accounts import address_pages, saml_pages, single_sign_on_pages, views

urlpatterns = [
    path("health/", views.check_health, name="health"),
    path("health/live", views.check_liveness, name="health-live"),
    path("health/ready", views.check_readiness, name="health-ready"),
    path("setup/<str:token>/", views.set_up_lab, name="setup"),
    path("accounts/email/", address_pages.AddressView.as_view(), name="account_email"),
    path("accounts/confirm-email/<str:key>/", address_pages.ConfirmView.as_view(), name="account_confirm_email"),
    re_path(
        r"^accounts/password/reset/key/(?P<uidb36>[0-9A-Za-z]+)-(?P<key>.+)/$",
        address_pages.ChoosePasswordView.as_view(),
        name="account_reset_password_from_key",
    ),
    path("accounts/", include("allauth.account.urls")),
    path("accounts/2fa/", include("allauth.mfa.urls")),
    path("accounts/sessions/", include("allauth.usersessions.urls")),
    path("accounts/3rdparty/", include("allauth.socialaccount.urls")),
    path("accounts/oidc/<str:provider_id>/login/", single_sign_on_pages.redirect_to_provider, name="openid_connect_login"),
    path("accounts/oidc/<str:provider_id>/login/callback/", single_sign_on_pages.come_back, name="openid_connect_callback"),
    path("accounts/saml/<str:organization_slug>/login/", saml_pages.redirect_to_identity_provider, name="saml_login"),
    path("accounts/saml/<str:organization_slug>/acs/", saml_pages.receive_response, name="saml_acs"),
    path("accounts/saml/<str:organization_slug>/acs/finish/", saml_pages.finish_sign_in, name="saml_finish_acs"),
    path("accounts/saml/<str:organization_slug>/metadata/", saml_pages.show_metadata, name="saml_metadata"),
    path("accounts/saml/<str:organization_slug>/sls/", saml_pages.refuse_single_logout, name="saml_sls"),
    path("account/", views.show_account, name="account"),
    path("account/address/verify/", address_pages.send_proof, name="account-address-verify"),
    path("account/sessions/<id:session_id>/end/", views.session_end, name="account-session-end"),
]
