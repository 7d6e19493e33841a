"""HTTP by Django, websockets by Channels; a socket is opened only from the lab's own pages, by somebody who is logged in."""

import gc

gc.disable()  # while all is loaded: the collector would look through it again and again, a fifth of the time

# ruff: noqa: E402
from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings
from django.core.asgi import get_asgi_application

from lab.lib.body_limit import BodyLimit
from lab.lib.database_limits import DatabaseTroubleMiddleware, keep_short_scans_serial, limit_statements
from lab.lib.garbage_collection import freeze_loaded
from lab.lib.log_context import RequestContext
from lab.lib.proxies import TrustedProxies
from lab.lib.secret_key import refuse_weak

refuse_weak(settings.SECRET_KEY)
http = get_asgi_application()  # loads the apps, which the routes below import
limit_statements(settings.STATEMENT_SECONDS)
keep_short_scans_serial()

from lab.edges.api.credentials import is_admitted
from lab.lib.origins import OwnOriginMiddleware
from lab.urls import websocket_urlpatterns

freeze_loaded()  # not to be looked through again in the middle of a request
gc.enable()

websocket = OwnOriginMiddleware(DatabaseTroubleMiddleware(AuthMiddlewareStack(URLRouter(websocket_urlpatterns))))
limited = BodyLimit(ProtocolTypeRouter({"http": http, "websocket": websocket}), settings.BODY_LIMITS, settings.BODY_LIMIT, is_admitted)
application = RequestContext(TrustedProxies(limited, settings.PROXIES))
