"""``attributes.md``: every resource and span attribute, and where a resource attribute comes from."""

from __future__ import annotations

from collections.abc import Iterator

from nemo_lens.api import semconv
from nemo_lens.api._variables import DEFAULT_PREFIX, VARIABLES
from nemo_lens.api.semconv.descriptions import DESCRIPTIONS
from nemo_lens.sdk.resources import gpu, kubernetes, precedence, slurm

from .markdown import listed, paragraph, section, table, title

# Title, what the names begin with, what there is to say.
GROUPS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("Service", ("service.", "deployment."), ""),
    ("Machine and process", ("host.", "process."), ""),
    ("Run", ("nemo.", "wandb."), ""),
    ("Training job", ("nv.dl.",), "The application, or a launcher, gives what only it knows."),
    ("GPU", ("nv.gpu.",), "`detect_gpu()` runs only when it is called, or named as an OpenTelemetry detector."),
    ("Kubernetes", ("k8s.",), "The first source that answers. What is inherited wins."),
    ("SLURM", ("slurm.",), "The first variable that is not blank. What is inherited wins."),
)

# Sources that no table in the code holds.
APPLICATION = "the application"
OTHER_SOURCES: dict[str, str] = {
    semconv.SERVICE_NAME: f"configuration (`{DEFAULT_PREFIX}_SERVICE_NAME`, `OTEL_SERVICE_NAME`), "
    f"else `{precedence.DEFAULT_SERVICE_NAME}`",
    semconv.SERVICE_INSTANCE_ID: "run id and rank, where a rank is known",
    semconv.HOST_NAME: "operating system",
    semconv.HOST_GPU_COUNT: "`CUDA_VISIBLE_DEVICES`, else NVML, else `/proc/driver/nvidia/gpus`",
    semconv.PROCESS_PID: "operating system",
    semconv.NEMO_RUN_ID: f"configuration (`{DEFAULT_PREFIX}_RUN_ID`), else inherited, else `SLURM_JOB_ID`, else "
    "`TORCHELASTIC_RUN_ID`, else random",
    semconv.NV_DL_LAUNCH_CONTAINER_IMAGE: "`nemo-lens set-slurm-resource-attrs --container-image`",
    semconv.NV_DL_JOB_UUID: "under SLURM `derive_job_uuid()`",
    semconv.NV_DL_RUN_UUID: "`nemo-lens set-slurm-resource-attrs`, or the application from `derive_run_uuid()`",
    semconv.SLURM_HEAD_NODE_NAME: "`SLURMD_NODENAME` outside the tasks of `srun`",
    semconv.SLURM_HET_GROUP: "`SLURMD_NODENAME` and `SLURM_JOB_NODELIST_HET_GROUP_*`, in the tasks of `srun`",
}
# What is made of more than the first variable.
COMPOSED: dict[str, str] = {
    semconv.SLURM_JOB_ID: "in an array `SLURM_ARRAY_JOB_ID` and `SLURM_ARRAY_TASK_ID`",
}


def lines() -> Iterator[str]:
    """Return the lines of the page."""
    launchers = listed(key for key in semconv.RESOURCE_FIELDS if precedence._of_the_launcher(key))
    yield from title("Attributes")
    yield from paragraph(
        "The standard names follow the OpenTelemetry semantic conventions "
        f"{semconv.SEMCONV_VERSION} (`SEMCONV_VERSION`). Each name is a constant of `nemo_lens.api.semconv`: "
        "`nv.dl.rank` is `NV_DL_RANK`, `gen_ai.` is `GENAI_`. What is fixed for the process is a resource attribute, "
        '"which one?" is a span attribute, a number that moves is a [metric](metrics.md).'
    )
    yield from section("Resource attributes")
    yield from paragraph(
        "[Resources](../resources.md) says who wins where several know a value. Any of them may be given as "
        "`resource_attributes=` of `setup_telemetry`, or inherited in `OTEL_RESOURCE_ATTRIBUTES`, except "
        f"{launchers}, which are never inherited: they would be the launcher's."
    )
    origin = sources()
    for group, prefixes, note in GROUPS:
        yield from section(group, 3)
        if note:
            yield from paragraph(note)
        rows = ((name, kind) for name, kind in semconv.RESOURCE_FIELDS.items() if name.startswith(prefixes))
        yield from table(
            ("name", "type", "what it is", "source"),
            ((f"`{name}`", kind.__name__, DESCRIPTIONS[name], origin[name]) for name, kind in rows),
        )
    yield from section("Span attributes")
    yield from table(
        ("name", "type", "what it is"),
        ((f"`{name}`", kind.__name__, DESCRIPTIONS[name]) for name, kind in semconv.SPAN_FIELDS.items()),
    )


def sources() -> dict[str, str]:
    """Return where each resource attribute comes from when nobody gives it."""
    found = dict.fromkeys(semconv.RESOURCE_FIELDS, APPLICATION)
    found.update(OTHER_SOURCES)
    found.update(_of_the_configuration())
    for variable, attribute in precedence._TORCHELASTIC:
        found[attribute] = f"{APPLICATION}, else `{variable}` under torchelastic"
    found.update((attribute, f"NVML: `{function}`") for attribute, function, *_ in gpu._FACTS)
    found.update(of_slurm())
    found.update(of_kubernetes())
    return found


def _of_the_configuration() -> Iterator[tuple[str, str]]:
    rows = {row.field: row for row in VARIABLES}
    for field, attributes in precedence._CONFIG_ATTRIBUTES:
        prefixed = (f"{DEFAULT_PREFIX}_{rows[field].key}",) if rows[field].key else ()
        for attribute in attributes:
            yield attribute, f"configuration ({listed((*prefixed, *rows[field].bare))})"


def of_slurm() -> Iterator[tuple[str, str]]:
    """Return the attributes that SLURM's detector has in its table, with their sources."""
    for attribute, variables, default, _ in slurm._VARIABLES:
        composed = f"{COMPOSED[attribute]}; else " if attribute in COMPOSED else ""
        yield attribute, f"{composed}{listed(variables)}{f', else {default}' if default else ''}"


def of_kubernetes() -> Iterator[tuple[str, str]]:
    """Return the attributes that the detector of Kubernetes has in its tables, with their sources."""
    for attribute, variables in kubernetes.VARIABLES.items():
        parts = [listed(variables)]
        if attribute in kubernetes.FILES:
            parts.append(listed(f"/{path}" for path in kubernetes.FILES[attribute]))
        if attribute in kubernetes.LABELS:
            files = " and ".join(f"`/{path}`" for path in kubernetes.LABEL_FILES)
            parts.append(f"the label {listed(kubernetes.LABELS[attribute])} in {files}")
        if attribute in kubernetes.VARIABLES_OF_A_POD:
            parts.append(f"inside a pod {listed(kubernetes.VARIABLES_OF_A_POD[attribute])}")
        yield attribute, "; ".join(parts)
