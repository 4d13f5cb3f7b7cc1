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
