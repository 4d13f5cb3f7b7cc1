"""The session of an OTLP exporter over HTTP."""

from __future__ import annotations

from typing import Any

import requests


class ExporterSession(requests.Session):
    """A session whose own certificate comes before ``REQUESTS_CA_BUNDLE`` and ``CURL_CA_BUNDLE``.

    Newer exporters give the certificate of ``OTEL_EXPORTER_OTLP_CERTIFICATE`` to the session and not to each request,
    and requests puts the two variables above the session (https://github.com/psf/requests/issues/3829).
    """

    def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
        """Return the settings of a request: its own, the session's certificate, the environment's."""
        if verify is None and self.verify is not True:
            verify = self.verify
        return super().merge_environment_settings(url, proxies, stream, verify, cert)


class StrictSession(ExporterSession):
    """A session to which a redirect that loses what was sent is a fault.

    Newer exporters do not follow it and count the answer as a success; older ones may follow it with a GET and take
    what it leads to, a login page for instance, for one.
    """

    def request(self, *args: Any, **options: Any) -> requests.Response:
        """Send the request. Raises ``requests.HTTPError`` where its body was not delivered."""
        response = super().request(*args, **options)
        first = (*response.history, response)[0]
        if 300 <= response.status_code < 400 or response.request.method != first.request.method:
            raise requests.HTTPError(
                f"the receiver redirects to another address ({first.status_code}): set the endpoint to that one"
            )
        return response
