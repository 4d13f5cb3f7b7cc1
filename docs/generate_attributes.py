"""Write ``attributes.md`` from the tables in the code; with ``--check``, only say whether it is up to date."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from nemo_lens.api import semconv
from nemo_lens.api._variables import DEFAULT_PREFIX, VARIABLES
from nemo_lens.api.semconv.descriptions import DESCRIPTIONS
from nemo_lens.sdk.resources import gpu, kubernetes, precedence, slurm

PAGE = Path(__file__).with_name("attributes.md")
COMMAND = "python docs/generate_attributes.py"

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


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or check it; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when the page is stale")
    options = parser.parse_args(arguments)
    text = page()
    if not options.check:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        sys.stderr.write(f"{PAGE} is not what the tables in the code say: run {COMMAND}\n")
        return 1
    return 0


def page() -> str:
    """Return the text of the page."""
    return "\n".join(_lines()) + "\n"


def sources() -> dict[str, str]:
    """Return where each resource attribute comes from when nobody gives it."""
    found = dict.fromkeys(semconv.RESOURCE_FIELDS, APPLICATION)
    found.update(OTHER_SOURCES)
    found.update(_of_the_configuration())
    for variable, attribute in precedence._TORCHELASTIC:
        found[attribute] = f"{APPLICATION}, else `{variable}` under torchelastic"
    found.update((attribute, f"NVML: `{function}`") for attribute, function, *_ in gpu._FACTS)
    found.update(_of_slurm())
    found.update(_of_kubernetes())
    return found


def _lines() -> Iterator[str]:
    launchers = _listed(key for key in semconv.RESOURCE_FIELDS if precedence._of_the_launcher(key))
    yield "# Attribute reference"
    yield ""
    yield f"<!-- Written by {COMMAND} from the tables in the code; a test holds the two together. -->"
    yield from _paragraph(
        "The standard names follow the OpenTelemetry semantic conventions "
        f"{semconv.SEMCONV_VERSION} (`SEMCONV_VERSION`). Each name is a constant of `nemo_lens.api.semconv`: "
        "`nv.dl.rank` is `NV_DL_RANK`, `gen_ai.` is `GENAI_`. What is fixed for the process is a resource attribute, "
        '"which one?" is a span attribute, a number that moves is a metric.'
    )
    yield from ("", "## Resource attributes")
    yield from _paragraph(
        "[Resources](resources.md) says who wins where several know a value. Any of them may be given as "
        "`resource_attributes=` of `setup_telemetry`, or inherited in `OTEL_RESOURCE_ATTRIBUTES`, except "
        f"{launchers}, which are never inherited: they would be the launcher's."
    )
    origin = sources()
    for title, prefixes, note in GROUPS:
        yield from ("", f"### {title}")
        if note:
            yield from _paragraph(note)
        yield ""
        rows = ((name, kind) for name, kind in semconv.RESOURCE_FIELDS.items() if name.startswith(prefixes))
        yield from _table(
            ("name", "type", "what it is", "source"),
            ((f"`{name}`", kind.__name__, DESCRIPTIONS[name], origin[name]) for name, kind in rows),
        )
    yield from ("", "## Span attributes", "")
    yield from _table(
        ("name", "type", "what it is"),
        ((f"`{name}`", kind.__name__, DESCRIPTIONS[name]) for name, kind in semconv.SPAN_FIELDS.items()),
    )
    yield from ("", "## Metrics")
    yield from _paragraph(
        "Units are those of UCUM. The `gen_ai.*` metrics carry `gen_ai.operation.name`, `gen_ai.provider.name`, "
        "`gen_ai.request.model` and, for tokens, `gen_ai.token.type`; the others what the caller gives. "
        "[Metrics](metrics.md) says how they are recorded."
    )
    yield ""
    yield from _table(
        ("name", "kind", "unit", "what it is"),
        ((f"`{name}`", kind, f"`{unit}`", DESCRIPTIONS[name]) for name, (kind, unit) in semconv.METRIC_FIELDS.items()),
    )


def _of_the_configuration() -> Iterator[tuple[str, str]]:
    rows = {row.field: row for row in VARIABLES}
    for field, attributes in precedence._CONFIG_ATTRIBUTES:
        prefixed = (f"{DEFAULT_PREFIX}_{rows[field].key}",) if rows[field].key else ()
        for attribute in attributes:
            yield attribute, f"configuration ({_listed((*prefixed, *rows[field].bare))})"


def _of_slurm() -> Iterator[tuple[str, str]]:
    for attribute, variables, default, _ in slurm._VARIABLES:
        composed = f"{COMPOSED[attribute]}; else " if attribute in COMPOSED else ""
        yield attribute, f"{composed}{_listed(variables)}{f', else {default}' if default else ''}"


def _of_kubernetes() -> Iterator[tuple[str, str]]:
    for attribute, variables in kubernetes.VARIABLES.items():
        parts = [_listed(variables)]
        if attribute in kubernetes.FILES:
            parts.append(_listed(f"/{path}" for path in kubernetes.FILES[attribute]))
        if attribute in kubernetes.LABELS:
            files = " and ".join(f"`/{path}`" for path in kubernetes.LABEL_FILES)
            parts.append(f"the label {_listed(kubernetes.LABELS[attribute])} in {files}")
        if attribute in kubernetes.VARIABLES_OF_A_POD:
            parts.append(f"inside a pod {_listed(kubernetes.VARIABLES_OF_A_POD[attribute])}")
        yield attribute, "; ".join(parts)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _paragraph(text: str) -> Iterator[str]:
    yield ""
    yield from textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


if __name__ == "__main__":
    sys.exit(main())
