"""The shipped group ``gym``: environment servers, rollouts in them, and the verification of responses."""

from __future__ import annotations

from nemo_lens.api.instruments._shipped import doubling, shipped_spec
from nemo_lens.api.instruments.recording import record_metrics
from nemo_lens.api.semconv import metrics as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, SupportsFloat

GROUP = "gym"

# A request or a verification may compare two strings or run a test suite: 1 ms to 9 minutes, 20 bounds.
_REQUEST_MS = doubling(1.0, 600_000.0)
# A rollout is many requests and the generation between them: 100 ms to 55 minutes, as in the group ``rl``.
_ROLLOUT_MS = doubling(100.0, 3_600_000.0)

SPECS = (
    shipped_spec("server_request_duration_ms", names.GYM_SERVER_REQUEST_DURATION_MS, _REQUEST_MS),
    shipped_spec("rollout_duration_ms", names.GYM_ROLLOUT_DURATION_MS, _ROLLOUT_MS),
    shipped_spec("verify_duration_ms", names.GYM_VERIFY_DURATION_MS, _REQUEST_MS),
    shipped_spec("verify_success_rate", names.GYM_VERIFY_SUCCESS_RATE),
    shipped_spec("active_servers", names.GYM_SERVERS_ACTIVE),
)


def record_gym_metrics(
    meter: Any,
    *,
    server_request_duration_ms: SupportsFloat | None = None,
    rollout_duration_ms: SupportsFloat | None = None,
    verify_duration_ms: SupportsFloat | None = None,
    verify_success_rate: SupportsFloat | None = None,
    active_servers: SupportsFloat | None = None,
    attributes: Mapping[str, object] | None = None,
) -> None:
    """Record what environment servers do under ``gym.*``; never raise.

    What is None is left out. The names and units are those of ``nemo_lens.api.semconv``.

    Args:
        meter: meter to record on, as ``get_meter`` returns.
        server_request_duration_ms: time of a request to an environment server, in milliseconds.
        rollout_duration_ms: time of a rollout in an environment, in milliseconds.
        verify_duration_ms: time to verify a response, in milliseconds.
        verify_success_rate: share of the responses that were verified, 0 to 1.
        active_servers: environment servers that answer.
        attributes: attributes of all these measurements, such as ``gym.server.type``: few keys of few values each.
    """
    record_metrics(
        meter,
        GROUP,
        {
            "server_request_duration_ms": server_request_duration_ms,
            "rollout_duration_ms": rollout_duration_ms,
            "verify_duration_ms": verify_duration_ms,
            "verify_success_rate": verify_success_rate,
            "active_servers": active_servers,
        },
        attributes=attributes,
    )
