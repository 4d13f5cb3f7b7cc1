"""What the tables in the code do not say of a variable: its meaning, and those that no table holds."""

from __future__ import annotations

from nemo_lens.sdk import settings
from nemo_lens.sdk.exporters.preferences import AGGREGATION_VARIABLE, TEMPORALITY_VARIABLE

# Value, default, meaning.
PROCESS_WIDE: dict[str, tuple[str, str, str]] = {
    "NEMO_LENS_BACKEND": ("name", "`otel`", "Backend, when several are installed."),
    "NEMO_LENS_INSTRUMENT": ("comma list", "", "Integrations that `setup_telemetry` switches on."),
}

# Variable, default, meaning.
GENERAL: tuple[tuple[str, str, str], ...] = (
    ("OTEL_SDK_DISABLED", "`false`", "`true` switches all telemetry off, whatever else is set."),
    ("OTEL_SERVICE_NAME", "", "`service.name`, unless `NEMO_LENS_SERVICE_NAME` or the application says."),
    (
        "OTEL_RESOURCE_ATTRIBUTES",
        "",
        "Attributes of the resource, as a launcher hands them on: [the carrier](../resources.md).",
    ),
    (
        "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS",
        "`otel`",
        (
            "OpenTelemetry detectors by name. Lens runs its own without it; "
            "[other applications](../resources.md#in-any-opentelemetry-application) name them here."
        ),
    ),
    ("OTEL_PROPAGATORS", "`tracecontext,baggage`", "Formats of the trace context between processes."),
    (
        "OTEL_TRACES_SAMPLER",
        "`parentbased_always_on`",
        f"{', '.join(f'`{name}`' for name in settings.SAMPLERS)}, or an installed one. The first set-up reads it.",
    ),
    ("OTEL_TRACES_SAMPLER_ARG", "1", "Ratio of `traceidratio`, from 0 to 1."),
)

TRACE_CONTEXT: dict[str, str] = {
    "TRACEPARENT": "Parent of this process's root spans, as W3C Trace Context writes it.",
    "TRACESTATE": "What vendors add to it.",
    "BAGGAGE": "Baggage, as W3C Baggage writes it.",
}

# Which applies to attributes of what: the specific one wins.
LIMITS: dict[str, str] = {
    "OTEL_ATTRIBUTE_COUNT_LIMIT": "attributes of a span, an event, a link or a log record; 128",
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "characters of a value; text that goes through Lens is cut at 8192 without it",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "attributes of a span",
    "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": "characters of a value on a span",
    "OTEL_SPAN_EVENT_COUNT_LIMIT": "events of a span; 128",
    "OTEL_SPAN_LINK_COUNT_LIMIT": "links of a span; 128",
    "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT": "attributes of an event; 128",
    "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT": "attributes of a link; 128",
}

# By the end of the name; then by the whole name what differs.
QUEUES: dict[str, str] = {
    "SCHEDULE_DELAY": "Milliseconds between two exports, unless a batch is full before.",
    "MAX_QUEUE_SIZE": "Items that may wait; what comes next is dropped and counted.",
    "MAX_EXPORT_BATCH_SIZE": "Items of a batch at most.",
    "EXPORT_TIMEOUT": "Milliseconds that `force_flush` waits, for all signals, when it is given none.",
    "OTEL_BLRP_EXPORT_TIMEOUT": "Checked, and not used: `OTEL_BSP_EXPORT_TIMEOUT` counts for all signals.",
}

METRICS: tuple[tuple[str, str, str], ...] = (
    (
        "OTEL_METRIC_EXPORT_INTERVAL",
        f"{settings.DEFAULT_METRIC_INTERVAL_MS} (the specification: 60000)",
        "Milliseconds between two collections.",
    ),
    ("OTEL_METRIC_EXPORT_TIMEOUT", str(settings.DEFAULT_METRIC_TIMEOUT_MS), "Milliseconds that an export may take."),
    (
        "OTEL_METRICS_EXEMPLAR_FILTER",
        f"`{settings.EXEMPLAR_FILTERS[0]}`",
        f"Which values carry the ids of their span: {', '.join(f'`{name}`' for name in settings.EXEMPLAR_FILTERS)}.",
    ),
    (TEMPORALITY_VARIABLE, "`cumulative`", "`cumulative`, `delta` or `lowmemory`."),
    (
        AGGREGATION_VARIABLE,
        "`explicit_bucket_histogram`",
        "That, or `base2_exponential_bucket_histogram`, which needs no bounds.",
    ),
    (
        settings.SELF_METRICS_VARIABLE,
        "`true`; with the exporter `console` `false`",
        "Whether [metrics about the telemetry itself](metrics.md#telemetry-itself) are exported.",
    ),
)

# By the end of the name.
OTLP: dict[str, str] = {
    "PROTOCOL": "`grpc` or `http/protobuf`.",
    "ENDPOINT": "Where the collector listens. Over HTTP `/v1/traces` and the like are added to the general one, and "
    "not to that of a signal. For gRPC `http://` means no TLS.",
    "TIMEOUT": "Seconds that an export may take (specification: 10000, in milliseconds). Over gRPC that of a signal "
    "must not be blank.",
    "COMPRESSION": "`none` (default), `gzip`, and over HTTP `deflate`.",
    "HEADERS": "`name=value` pairs, with commas; blanks as `%20`, a `%` as `%25`. Never shown, and not handed on to "
    "Ray's workers.",
    "CERTIFICATE": "PEM file of the authority that signed the collector's certificate.",
    "CLIENT_CERTIFICATE": "PEM file of this client's certificate.",
    "CLIENT_KEY": "PEM file of its key.",
    "INSECURE": "gRPC to an endpoint without a scheme: `true` speaks without TLS.",
}
OTLP_ONLY_GENERAL: tuple[tuple[str, str, str], ...] = (
    (
        "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER",
        "",
        (
            "Entry point that gives the session of requests over HTTP, with a form for one signal too "
            "(`OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER`); the official exporter reads it."
        ),
    ),
    (
        "GRPC_ENABLE_FORK_SUPPORT",
        "0",
        "Leave it off: on, gRPC can hang forked processes.",
    ),
)

INTEGRATIONS: tuple[tuple[str, str], ...] = (
    (
        "OTEL_PYTHON_FASTAPI_EXCLUDED_URLS",
        "URLs of which `instrument_fastapi` makes no spans: regular expressions, with commas.",
    ),
    ("OTEL_PYTHON_EXCLUDED_URLS", "The same, when the one above is not set."),
    (
        "RAY_JOB_CONFIG_JSON_ENV_VAR",
        "Set by Ray in the driver of a submitted job; `ray_runtime_env` leaves to it what it decides.",
    ),
)

TORCH: tuple[tuple[str, str], ...] = (
    ("TORCHELASTIC_RUN_ID", "Says that torchrun started this process; the run id, unless it is `none`."),
    ("TORCHELASTIC_RESTART_COUNT", "Part of `nv.dl.run.uuid`: each restart is a run of its own."),
    ("RANK", "`nv.dl.rank` under torchrun."),
    ("WORLD_SIZE", "`nv.dl.world_size` under torchrun; above 1 and without a run id, a WARNING asks for one."),
    ("LOCAL_RANK", "`nv.dl.local_rank` under torchrun."),
)

# What sets no attribute by itself.
SLURM: tuple[tuple[str, str], ...] = (
    ("SLURM_STEP_ID", "Whether this is a task of `srun` or the batch script."),
    ("SLURM_STEPID", "The same, in older versions of SLURM."),
    ("SLURMD_NODENAME", "`slurm.head_node.name` in the batch script; in a task, which het group it belongs to."),
    ("SLURM_JOB_ID_HET_GROUP_*", "The job ids of the components of a heterogeneous job."),
    ("SLURM_JOB_NODELIST_HET_GROUP_*", "Their nodes."),
    ("SLURM_LOCALID", "Which GPU a task without `LOCAL_RANK` has."),
)

# Described with what they belong to.
ELSEWHERE = ("TRACEPARENT", "GRPC_ENABLE_FORK_SUPPORT")
_PROXY = "Proxy of the requests"
NETWORK: dict[str, str] = {
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": "Authorities that gRPC trusts, unless `OTEL_EXPORTER_OTLP_CERTIFICATE` says.",
    "REQUESTS_CA_BUNDLE": (
        "Authorities that OTLP over HTTP trusts, unless `OTEL_EXPORTER_OTLP_CERTIFICATE` says; with a credential "
        "provider, whose session it is, it may win over that."
    ),
    "CURL_CA_BUNDLE": "The same, when the one above is not set.",
    "grpc_proxy": f"{_PROXY} over gRPC.",
    "https_proxy": f"{_PROXY} to `https://`, and over gRPC when `grpc_proxy` is not set.",
    "http_proxy": f"{_PROXY} to `http://`, and over gRPC when neither is set.",
    "all_proxy": f"{_PROXY} over HTTP when none of its scheme is set.",
    "no_proxy": "Hosts that are reached without a proxy.",
    "no_grpc_proxy": "The same for gRPC alone.",
}

TERMINAL: tuple[tuple[tuple[str, ...], str], ...] = (
    (("NO_COLOR",), "No colours; see https://no-color.org."),
    (("TERM",), "No colours when it is `dumb`."),
    (("COLUMNS",), "Width of what is printed, instead of the terminal's."),
    (("TMPDIR",), "Where `timeline` keeps what does not fit into memory; default beside its output."),
    (
        ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"),
        "Whether `--open` can show a browser here, or says how to reach the page from elsewhere.",
    ),
)
