"""One settings file; everything that differs between installations comes from the environment, and a wrong value stops the start.

``DATABASE_URL`` and ``REDIS_URL`` name the services. Without them ``manage.py`` starts embedded ones under ``LAB_HOME`` (see ``embedded.py``)
and sets both before this file is read.
"""

import os
import re
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import environ
from django.conf import global_settings
from django.core.exceptions import ImproperlyConfigured
from django.templatetags.static import static

from lab.lib.artifact_store import find_url_problem
from lab.lib.content_policy import build_csp_directives
from lab.lib.outgoing import parse_port_ranges
from lab.lib.proxies import parse_proxy_networks
from lab.lib.redaction import redact_secrets
from lab.lib.saml_sign_on import build_saml_providers, list_saml_origins
from lab.lib.secret_files import read_secret_files
from lab.lib.secret_key import read_or_create
from lab.lib.single_sign_on import build_sso_providers
from lab.lib.start_commands import parse_start_commands

read_secret_files(os.environ)
env = environ.Env()

BASE = Path(__file__).resolve().parent.parent
HOME = Path(env.str("LAB_HOME", default=str(BASE / "var"))).resolve()
RUNS_ROOT = Path(env.str("LAB_RUNS", default=str(HOME / "runs")))
POLICIES_ROOT = Path(env.str("LAB_POLICIES", default=str(HOME / "policies")))  # folders with policies people may train from
DATASETS_ROOT = Path(env.str("LAB_DATASETS", default=str(HOME / "datasets")))  # files people may train on

# Where files lie that several machines read without a shared folder: a URL of fsspec. Empty: the folders above are shared, or there is one machine.
STORE_URL = env.str("LAB_STORE", default="")
if STORE_URL and (store_problem := find_url_problem(STORE_URL)):
    raise ImproperlyConfigured(f"LAB_STORE {redact_secrets(STORE_URL)!r} {store_problem}")
STORE_CACHE = HOME / "store-cache"  # what this machine has read from there lately
STORE_CACHE_BYTES = int(env.float("LAB_STORE_CACHE_GB", default=50) * 1e9)

HUB_URL = env.str("LAB_HUB_URL", default="https://huggingface.co").rstrip("/")  # where policies are pushed to; never from a browser

DEBUG = env.bool("LAB_DEBUG", default=False)
SECRET_KEY = os.environ.get("SECRET_KEY", "")
if not SECRET_KEY:
    if os.environ.get("LAB_EMBEDDED") != "1":
        message = "DATABASE_URL names a server, so SECRET_KEY must be set too, the same for all processes: 50 or more random characters"
        raise ImproperlyConfigured(message)
    SECRET_KEY = read_or_create(HOME / "secret-key")
ALLOWED_HOSTS = env.list("LAB_HOSTS", default=["127.0.0.1", "localhost", "[::1]"])
LAB_URL = env.str("LAB_URL", default="http://127.0.0.1:8000").rstrip("/")  # where people reach the lab; stands in mails and webhooks
CSRF_TRUSTED_ORIGINS = env.list("LAB_ORIGINS", default=[])
TLS = env.bool("LAB_TLS", default=LAB_URL.startswith("https://"))  # people come by https: cookies and browsers are told to keep to it
try:
    PROXIES = parse_proxy_networks(env.list("LAB_PROXY", default=[]))  # the only peers whose word on who asks, and by which scheme, counts
except ValueError as error:
    raise ImproperlyConfigured(str(error)) from None

INSTALLED_APPS = [
    "unfold.apps.BasicAppConfig",
    "django.contrib.admin.apps.SimpleAdminConfig",  # lab.edges.operations has a site of its own
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "django.contrib.postgres",
    "channels",
    "django_htmx",
    "template_partials",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.usersessions",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "allauth.socialaccount.providers.saml",
    "lab.teams.accounts",
    "lab.teams.audit",
    "lab.teams.people",
    "lab.training.catalog",
    "lab.training.workers",
    "lab.training.runs",
    "lab.training.ablations",
    "lab.training.sweeps",
    "lab.training.edits",
    "lab.training.rewards",
    "lab.rollouts.trajectories",
    "lab.rollouts.annotations",
    "lab.rollouts.browse",
    "lab.rollouts.reading",
    "lab.rollouts.atlas",
    "lab.rollouts.comparison",
    "lab.rollouts.replay",
    "lab.rollouts.backtests",
    "lab.rollouts.doctor",
    "lab.labelling.labels",
    "lab.labelling.quality",
    "lab.data.datasets",
    "lab.data.tasks",
    "lab.data.loop",
    "lab.data.projects",
    "lab.watching.usage",
    "lab.watching.retention",
    "lab.watching.alerts",
    "lab.watching.reports",
    "lab.models.policies",
    "lab.models.playground",
    "lab.models.branches",
    "lab.models.embeddings",
    "lab.models.bin",
    "lab.supervision.supervisor",
    "lab.edges.operations",
    "lab.edges.api",
]

MIDDLEWARE = [
    "lab.lib.headers.SecurityHeadersMiddleware",
    "lab.lib.content_policy.ContentPolicyMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "lab.teams.accounts.middleware.TeamAddressMiddleware",
    "lab.teams.audit.recording.AuditMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "lab.teams.accounts.sessions.SeenMiddleware",
    "lab.teams.accounts.devices.DeviceMiddleware",
    "lab.teams.accounts.middleware.PermissionMiddleware",
    "lab.lib.refusal_answers.RefusalMiddleware",
]

ROOT_URLCONF = "lab.urls"
ASGI_APPLICATION = "lab.asgi.application"
APPEND_SLASH = True

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "libraries": {"lab": "lab.lib.template_tags"},
            "builtins": ["lab.lib.url_tag"],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "lab.teams.accounts.context.build_permission_context",
                "lab.teams.accounts.context.build_account_context",
            ],
        },
    }
]

DATABASES = {"default": env.db_url("DATABASE_URL")}
DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
POOL_SIZE = env.int("LAB_DB_POOL", default=10)  # connections of the web process; 0 = no pool, as in a worker, which forks
if POOL_SIZE:
    DATABASES["default"].setdefault("OPTIONS", {})["pool"] = {
        "min_size": min(8, POOL_SIZE),  # a new one costs up to six round trips, which is what a slow network has least of
        "max_size": POOL_SIZE,
        "timeout": 5,
        "max_waiting": 20 * POOL_SIZE,
    }
STATEMENT_SECONDS = env.float("LAB_STATEMENT_SECONDS", default=30)  # of one statement of the web process (asgi.py); 0 = no limit
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = env.str("REDIS_URL")
# Pub/sub keeps no group membership in Redis: a flushed or restarted Redis loses wake-ups, never subscriptions.
CHANNEL_LAYERS = {"default": {"BACKEND": "lab.lib.channel_layer.SharedMessageLayer", "CONFIG": {"hosts": [REDIS_URL]}}}

CELERY_BROKER_URL = REDIS_URL.replace("unix://", "redis+socket://", 1)
CELERY_TASK_IGNORE_RESULT = True
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_SERIALIZER = "json"
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = False  # the lease, not the broker, brings a lost run back
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_MAX_TASKS_PER_CHILD = 50  # what a supervisor leaves in memory ends with it
CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, Any] = {"visibility_timeout": 30 * 86_400}  # s; a message held longer would be delivered once more
if REDIS_URL.startswith("redis"):  # over TCP: a connection that a firewall forgot is noticed, and made anew
    CELERY_BROKER_TRANSPORT_OPTIONS |= {"socket_timeout": 20, "socket_connect_timeout": 5, "socket_keepalive": True, "health_check_interval": 10}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # a worker waits for Redis for as long as it takes
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False  # training goes on without Redis
CELERY_TASK_PUBLISH_RETRY_POLICY = {"max_retries": 2, "interval_start": 0.1, "interval_max": 0.5}
CELERY_TASK_DEFAULT_QUEUE = "gpu"

AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*", "password2*"]
ACCOUNT_EMAIL_VERIFICATION = "none"  # signing in waits for no proof of the address; single sign-on does (lab.teams.accounts.address_proof)
ACCOUNT_CHANGE_EMAIL = True
ACCOUNT_EMAIL_NOTIFICATIONS = True
ACCOUNT_REAUTHENTICATION_REQUIRED = True
ACCOUNT_LOGIN_BY_CODE_ENABLED = False
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_DEFAULT_HTTP_PROTOCOL = LAB_URL.partition("://")[0]
ACCOUNT_ADAPTER = "lab.teams.accounts.adapter.ClosedRegistrationAdapter"
ACCOUNT_FORMS = {
    "login": "lab.teams.accounts.forms.SignInForm",
    "reset_password": "lab.teams.accounts.forms.ResetForm",
    "reset_password_from_key": "lab.teams.accounts.forms.ChoosePasswordForm",
    "add_email": "lab.teams.accounts.address_change.ChangeForm",
}
USERSESSIONS_ADAPTER = "lab.teams.accounts.sessions.SessionRevocationAdapter"
MFA_FORMS = {
    "authenticate": "lab.teams.accounts.codes.AuthenticateCodeForm",
    "reauthenticate": "lab.teams.accounts.codes.ReauthenticateCodeForm",
    "authenticate_webauthn": "lab.teams.accounts.codes.AuthenticateKeyForm",
    "reauthenticate_webauthn": "lab.teams.accounts.codes.ReauthenticateKeyForm",
}
MFA_ALLOW_UNVERIFIED_EMAIL = True  # without a mail server there would be none; they fall when the address's owner proves it
MFA_ADAPTER = "lab.teams.accounts.second_factor.SealedFactorAdapter"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_TOTP_TOLERANCE = 1  # a phone's clock may be half a minute off
MFA_WEBAUTHN_ALLOW_INSECURE_ORIGIN = LAB_URL.startswith("http://")  # browsers offer keys over plain http on localhost only
SOCIALACCOUNT_ADAPTER = "lab.teams.accounts.single_sign_on.KnownPeopleAdapter"
SOCIALACCOUNT_PROVIDERS = {**build_sso_providers(env), **build_saml_providers(env, LAB_URL)}
SOCIALACCOUNT_EMAIL_AUTHENTICATION_AUTO_CONNECT = True  # to accounts that the adapter finds: those with a verified address
SOCIALACCOUNT_LOGIN_ON_GET = False
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
    {"NAME": "lab.teams.accounts.passwords.MaximumLengthValidator"},
]
# Attempts to sign in are counted in the database: they hold with Redis away, and over all processes.
CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.db.DatabaseCache", "LOCATION": "lab_cache", "OPTIONS": {"MAX_ENTRIES": 10_000}},
    # What {% cache %} and the views keep, each process for itself.
    "template_fragments": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "fragments"},
    "process": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "process", "OPTIONS": {"MAX_ENTRIES": 2000}},
    "curves": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "curves", "OPTIONS": {"MAX_ENTRIES": 32}},  # a megabyte each
}
EMAIL_BACKEND = "lab.teams.accounts.mail.PrivateFolder"
EMAIL_FILE_PATH = str(HOME / "mail")
EMAIL_TIMEOUT = 10
if os.environ.get("LAB_EMAIL_URL"):
    vars().update(env.email_url("LAB_EMAIL_URL"))
DEFAULT_FROM_EMAIL = SERVER_EMAIL = env.str("LAB_EMAIL_FROM", default="Policy Lab <lab@localhost>")

UNFOLD = {  # /admin/
    "SITE_TITLE": "Policy Lab",
    "SITE_HEADER": "Policy Lab",
    "SITE_SUBHEADER": "Operators",
    "SITE_URL": "/",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("base/favicon.svg")}],
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": False,
    "SIDEBAR": {"show_search": False, "show_all_applications": False, "navigation": "lab.edges.operations.site.build_admin_navigation"},
    "STYLES": [lambda request: static("team/operators.css")],
}

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
FORMAT_MODULE_PATH = "lab.lib.formats"
USE_TZ = True

STATIC_URL = "/static/"
# Where collectstatic has put the files under hashed names (the image does). Without it whitenoise serves them from where they lie, unhashed.
STATIC_ROOT = env.str("LAB_STATIC", default="") or None
if STATIC_ROOT:
    STORAGES = {**global_settings.STORAGES, "staticfiles": {"BACKEND": "lab.lib.static_names.HashedStaticFiles"}}
STATICFILES_DIRS = [BASE / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "lab.lib.package_assets.NpmPackageFinder",
]
WHITENOISE_USE_FINDERS = not STATIC_ROOT
if not STATIC_ROOT:  # with it, the hashed names tell
    WHITENOISE_IMMUTABLE_FILE_TEST = r"/vendor/[^/]+-\d+\.\d+\.\d+\.min\.js$"  # the address says the version: a browser keeps the file for good
WHITENOISE_ALLOW_ALL_ORIGINS = False

SESSION_COOKIE_SAMESITE = "Lax"
SECURE_CONTENT_TYPE_NOSNIFF = True
X_FRAME_OPTIONS = "DENY"
SIGN_IN_PROVIDERS = [*env.list("LAB_OIDC_URL", default=[]), *env.list("LAB_OIDC_ORIGINS", default=[]), *list_saml_origins(env)]
CONTENT_SECURITY_POLICY = {"DIRECTIVES": build_csp_directives(SIGN_IN_PROVIDERS)}
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = TLS
if TLS:  # a name that browsers take only from https, for this host alone: no neighbour under the same domain can set it
    SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = "__Host-sessionid", "__Host-csrftoken"
SECURE_HSTS_SECONDS = env.int("LAB_HSTS_SECONDS", default=365 * 24 * 3600) if TLS else 0
SECURE_SSL_REDIRECT = TLS and bool(PROXIES)  # without a proxy of ours that says so, nobody knows by which scheme a person came
SECURE_REDIRECT_EXEMPT = [r"^health/(live|ready)?$", r"^metrics$"]  # asked past the proxy
LOG_FORMAT = env.str("LAB_LOG_FORMAT", default="text")
if LOG_FORMAT not in ("text", "json"):
    raise ImproperlyConfigured(f"LAB_LOG_FORMAT {LOG_FORMAT!r} must be text or json")
LOGGING = {  # Django's own, on the standard error, without secrets
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"redacting": {"()": "lab.lib.redaction.RedactionFilter"}, "context": {"()": "lab.lib.log_context.ContextFilter"}},
    "formatters": {"text": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}, "json": {"()": "lab.lib.json_log.JsonFormatter"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": LOG_FORMAT, "filters": ["redacting", "context"]}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {
        "django": {"handlers": [], "level": "INFO"},
        "uvicorn": {"handlers": ["stderr"]},  # in the place of its own handlers; level and propagation stay as uvicorn has set them
        "uvicorn.access": {"handlers": ["stderr"]},  # addresses of requests hold links that let people in
    },
}
# Bytes of a request, announced or counted, before Django reads it.
BODY_LIMIT, BODY_LIMITS = 3_000_000, {"/datasets/import/": 51_000_000, "/api/v1/outside/": 9_000_000, "/api/v1/datasets/import": 51_000_000}
BODY_LIMITS |= {"/tasks/new/": 51_000_000, "/api/v1/tasks/uploads": 51_000_000}
DATA_UPLOAD_MAX_NUMBER_FILES = 1

# How long a run may go without a heartbeat before another worker takes it, and how long a stop may take before it becomes a kill.
LEASE_SECONDS = env.float("LAB_LEASE_SECONDS", default=30)
STOP_GRACE_SECONDS = env.float("LAB_STOP_GRACE_SECONDS", default=120)
BIN_DAYS = env.int("LAB_BIN_DAYS", default=30)  # from the bin on; a run that is there already keeps the day it was given
SWEEP_SECONDS = env.float("LAB_SWEEP_SECONDS", default=5)
# Called by every worker each SWEEP_SECONDS, those of a lane one after the other: a lane is a thread with one database connection. What may wait for
# somebody else's server, and what may take long, must not keep lost runs waiting.
WORKER_CHORES = {
    "runs": [
        "lab.supervision.supervisor.sweeper.sweep_runs",
        "lab.training.sweeps.chores.advance_sweeps",
    ],
    "deliveries": ["lab.watching.alerts.deliveries.send_due_deliveries"],
    "upkeep": [
        "lab.training.catalog.published.publish_catalog",
        "lab.teams.audit.chores.sweep_audit_log",
        "lab.rollouts.browse.indexing.index_rollouts",
        "lab.rollouts.replay.chores.sweep_replays",
        "lab.rollouts.backtests.chores.sweep_backtests",
        "lab.models.playground.chores.sweep_samplings",
        "lab.models.branches.chores.sweep_branches",
        "lab.models.embeddings.chores.sweep_embedding_jobs",
        "lab.labelling.labels.item_order.reorder_grown",
        "lab.data.datasets.chores.sweep_versions_and_uploads",
        "lab.data.tasks.chores.sweep_tasks",
        "lab.data.loop.chores.run_loop_chores",
        "lab.data.loop.feed_chores.route_feeds",
        "lab.watching.alerts.chores.run_due_watchers",
        "lab.models.policies.chores.sweep_policies",
        "lab.watching.usage.storage_use.weigh_due_storage",
        "lab.watching.retention.chores.drop_due_rollouts",
        "lab.models.bin.chores.sweep_bin",
    ],
}

if STORE_URL:
    WORKER_CHORES["files"] = [
        "lab.supervision.supervisor.uploads.upload_left_behind",
        "lab.supervision.supervisor.shared_files.store_shared_files",
        "lab.training.runs.store_deletions.delete_from_store",
    ]

try:
    WORKER_STARTS = parse_start_commands(env.str("LAB_START", default=""))  # queue → the command that starts a worker for it
except ValueError as error:
    raise ImproperlyConfigured(str(error)) from None
if WORKER_STARTS:
    WORKER_CHORES["starts"] = ["lab.supervision.supervisor.worker_starts.start_wanted_workers"]
METRICS_TOKEN = env.str("LAB_METRICS_TOKEN", default="")  # for /metrics, which is not there without it
if METRICS_TOKEN and not re.fullmatch(r"[\w.~+/=-]{20,}", METRICS_TOKEN, re.ASCII):
    message = "LAB_METRICS_TOKEN must be 20 or more letters, digits or -._~+/= : openssl rand -hex 24 makes one"
    raise ImproperlyConfigured(message)
API_RATE = env.int("LAB_API_RATE", default=600)  # requests a minute that an access token may make
# What the lab may call of itself (webhooks): ports, and private networks besides the public internet, such as 10.20.0.0/16.
OUTGOING_PORTS = parse_port_ranges(env.str("LAB_OUTGOING_PORTS", default="80,443,8000-9999"))
OUTGOING_ALLOW = [ip_network(network) for network in env.list("LAB_OUTGOING_ALLOW", default=[])]
