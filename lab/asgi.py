"""HTTP by Django, websockets by Channels; a socket is opened only from the lab's own pages, by somebody who is logged in."""

import gc

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.core.asgi import get_asgi_application

http = get_asgi_application()  # loads the apps, which the routes below import

from lab.urls import websocket_urlpatterns  # noqa: E402

# What is loaded by now stays: the collector need not go through it again in the middle of a request.
gc.collect()
gc.freeze()

application = ProtocolTypeRouter({"http": http, "websocket": AllowedHostsOriginValidator(AuthMiddlewareStack(URLRouter(websocket_urlpatterns)))})
