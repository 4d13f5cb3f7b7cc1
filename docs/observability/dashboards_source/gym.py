"""The environments that a reinforcement-learning run plays in: a row of the dashboard ``rl``."""

from __future__ import annotations

from nemo_lens.api import semconv

from .board import Level, Panel, Query, Row

# Environments often run in processes without a rank: `$rank` is for the trainer's alone.
from .choices import ONE_RUN as GYM
from .promql import aggregate
from .queries import over_ranks, percentiles

REQUEST, VERIFY = semconv.GYM_SERVER_REQUEST_DURATION_MS, semconv.GYM_VERIFY_DURATION_MS

ENVIRONMENTS = Row(
    "Environments (gym)",
    "Do the environment servers answer, how fast, and does verification succeed? `rank` does not choose among these.",
    (
        Panel(
            "Servers that answer",
            "stat",
            "short",
            "Environment servers that answer now, added up. Fewer than were started: some are gone.",
            "See the logs of the servers.",
            "troubleshooting",
            (Query(aggregate("sum", GYM.latest(semconv.GYM_SERVERS_ACTIVE)), "servers"),),
            width=4,
            levels=(Level(0, "red"), Level(1, "green")),
        ),
        Panel(
            "Verified responses",
            "timeseries",
            "percentunit",
            "Share of the responses that were verified, mean and smallest. A fall to nothing is nearly always the "
            "verifier, not the model.",
            "See durations of verification: at their time limit, or near zero, the verifier fails.",
            "metrics",
            over_ranks(GYM, semconv.GYM_VERIFY_SUCCESS_RATE, "avg", "min"),
            width=10,
            minimum=0,
            maximum=1,
        ),
        Panel(
            "Requests to the servers",
            "timeseries",
            "reqps",
            "A second, over all servers. Nothing while rollouts run: the servers are not reached.",
            "See the servers that answer.",
            "metrics",
            (Query(GYM.rate(REQUEST, part="count"), "requests"),),
            width=10,
            minimum=0,
        ),
        Panel(
            "Duration of a request",
            "timeseries",
            "ms",
            "Percentiles, from buckets that double. All lines rise together: the servers are overloaded.",
            "Start more servers, or send them fewer requests at a time.",
            "metrics",
            percentiles(GYM, REQUEST),
            width=8,
            minimum=0,
        ),
        Panel(
            "Duration of a verification",
            "timeseries",
            "ms",
            "Percentiles, from buckets that double. A p99 at the time limit: verifications are cut off and count as "
            "failed.",
            "Raise the limit, or find what hangs.",
            "metrics",
            percentiles(GYM, VERIFY),
            width=8,
            minimum=0,
        ),
        Panel(
            "Duration of a rollout in an environment",
            "timeseries",
            "ms",
            "Percentiles, from buckets that double. The step waits for the slowest.",
            "Bound the turns of a rollout.",
            "metrics",
            percentiles(GYM, semconv.GYM_ROLLOUT_DURATION_MS),
            width=8,
            minimum=0,
        ),
        Panel(
            "Slowest servers now",
            "bars",
            "ms",
            "Mean duration of a request by `gym.server.name`, the ten longest; one bar where requests are recorded "
            "without that attribute.",
            "Start that server anew, or see its node.",
            "metrics",
            (
                Query(
                    aggregate("topk", GYM.mean(REQUEST, semconv.GYM_SERVER_NAME), parameter=10), "{{gym_server_name}}"
                ),
            ),
            width=24,
        ),
    ),
)
