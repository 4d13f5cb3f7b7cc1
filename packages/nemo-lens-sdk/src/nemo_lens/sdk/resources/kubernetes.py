"""The Kubernetes pod this process runs in, as its own manifest and the kubelet tell it.

``HOSTNAME`` is never taken for the pod's name: on the host network it is the node's, ``spec.hostname`` replaces it, a
long name is cut to 63 characters, and a process started from elsewhere has inherited it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from nemo_lens.api._diagnostics import debug_once, warn_once
from nemo_lens.api.semconv import (
    K8S_CONTAINER_NAME,
    K8S_JOB_NAME,
    K8S_NAMESPACE_NAME,
    K8S_NODE_NAME,
    K8S_POD_NAME,
    K8S_POD_UID,
)

SERVICE_ACCOUNT = "var/run/secrets/kubernetes.io/serviceaccount"
# Where Kubernetes' documentation mounts a downward-API volume.
POD_INFO = "etc/podinfo"

# Sources of each attribute, the first that answers wins: variables, files, labels, variables that need a pod.
# OTEL_RESOURCE_ATTRIBUTES_* are set by the OpenTelemetry operator, OTEL_K8S_* by the OpenTelemetry demo's chart,
# KUBERNETES_* by Elastic's documentation, MY_* by that of Kubernetes.
VARIABLES: dict[str, tuple[str, ...]] = {
    K8S_NAMESPACE_NAME: (
        "K8S_NAMESPACE_NAME",
        "K8S_NAMESPACE",
        "K8S_POD_NAMESPACE",
        "OTEL_K8S_NAMESPACE",
        "KUBERNETES_NAMESPACE",
        "POD_NAMESPACE",
        "MY_POD_NAMESPACE",
    ),
    K8S_POD_NAME: (
        "K8S_POD_NAME",
        "OTEL_RESOURCE_ATTRIBUTES_POD_NAME",
        "OTEL_K8S_POD_NAME",
        "KUBERNETES_POD_NAME",
        "POD_NAME",
        "MY_POD_NAME",
    ),
    K8S_POD_UID: (
        "K8S_POD_UID",
        "OTEL_RESOURCE_ATTRIBUTES_POD_UID",
        "OTEL_K8S_POD_UID",
        "KUBERNETES_POD_UID",
        "POD_UID",
        "MY_POD_UID",
    ),
    K8S_NODE_NAME: (
        "K8S_NODE_NAME",
        "OTEL_RESOURCE_ATTRIBUTES_NODE_NAME",
        "OTEL_K8S_NODE_NAME",
        "KUBERNETES_NODE_NAME",
        "KUBE_NODE_NAME",
        "MY_NODE_NAME",
    ),
    K8S_CONTAINER_NAME: ("K8S_CONTAINER_NAME",),
    K8S_JOB_NAME: ("K8S_JOB_NAME",),
}
FILES: dict[str, tuple[str, ...]] = {
    K8S_NAMESPACE_NAME: (
        f"{POD_INFO}/namespace",
        f"{POD_INFO}/pod_namespace",
        f"{POD_INFO}/podnamespace",
        f"{SERVICE_ACCOUNT}/namespace",
    ),
    K8S_POD_NAME: (f"{POD_INFO}/name", f"{POD_INFO}/pod_name", f"{POD_INFO}/podname"),
    K8S_POD_UID: (f"{POD_INFO}/uid", f"{POD_INFO}/pod_uid", f"{POD_INFO}/poduid"),
    # The downward API gives the node to variables alone; an init container may have written it.
    K8S_NODE_NAME: (f"{POD_INFO}/nodename", f"{POD_INFO}/node_name"),
}
# In the volume's files `labels` and `annotations`. The second is what Kubernetes before 1.27 wrote.
LABELS: dict[str, tuple[str, ...]] = {K8S_JOB_NAME: ("batch.kubernetes.io/job-name", "job-name")}
LABEL_FILES = (f"{POD_INFO}/labels", f"{POD_INFO}/annotations")
# Jenkins, Podman and others have variables of these names too.
VARIABLES_OF_A_POD: dict[str, tuple[str, ...]] = {
    K8S_NODE_NAME: ("NODE_NAME",),
    K8S_CONTAINER_NAME: ("CONTAINER_NAME",),
    K8S_JOB_NAME: ("JOB_NAME",),
}

# Kubernetes bounds a name at 253 characters, and all labels or annotations of an object at 256 KiB (of which a
# character takes up to four times as much when it is quoted).
_MAX_NAME = 253
_MAX_FILE = 4 * 256 * 1024

_UNRESOLVED = re.compile(r"\$\([^()\s]+\)")
_QUOTED = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"')
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))")
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", '"': '"'}


def detect_kubernetes(environ: Mapping[str, str] | None = None, root: str | Path = "/") -> dict[str, str | int]:
    """Return the attributes of the pod; empty outside one.

    Each comes from the first that answers: a variable, usually set through the downward API (``K8S_POD_NAME``,
    ``POD_NAME`` and further spellings); a file of a downward-API volume mounted at ``/etc/podinfo``; the namespace file
    of the service account. ``NODE_NAME``, ``CONTAINER_NAME`` and ``JOB_NAME``, which other software sets too, come last
    and count only where something else says that this is a pod, and not under Jenkins.

    Args:
        environ: environment to read; default ``os.environ``.
        root: folder in which ``etc`` and ``var`` are looked for.

    Returns:
        ``k8s.*`` attributes of the OpenTelemetry semantic conventions, all strings.
    """
    env = os.environ if environ is None else environ
    found: dict[str, str | int] = {}
    for attribute in VARIABLES:
        value = next(_answers(attribute, env, root), None)
        if value is not None:
            found[attribute] = value
    if _in_a_pod(found, env, root):
        for attribute, names in VARIABLES_OF_A_POD.items():
            value = next(_of_variables(names, env), None)
            if value is not None:
                found.setdefault(attribute, value)
    return found


def label_value(text: str, key: str) -> str | None:
    r"""Return a label from a downward-API file of labels or annotations.

    Args:
        text: lines ``key="value"``, the value quoted as Go's ``strconv.Quote`` does it (``\n``, ``\"``, ``\xff``,
            ``\u00e9``).
        key: name of the label.

    Returns:
        Its value, U+FFFD for what is no UTF-8 in it; None when it is not there or cannot be read.
    """
    # What is not asked for stays quoted: annotations may hold whole manifests.
    for line in text.split("\n"):
        name, _, quoted = line.strip().partition("=")
        if name == key:
            match = _QUOTED.fullmatch(quoted)
            try:
                if match is None:
                    raise ValueError("its value is not quoted")
                return _ESCAPE.sub(_unescaped, match[1]).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            except (ValueError, OverflowError) as fault:
                debug_once(("label", key), "the label %s cannot be read: %s", key, fault)
    return None


def _answers(attribute: str, env: Mapping[str, str], root: str | Path) -> Iterator[str]:
    yield from _of_variables(VARIABLES[attribute], env)
    for path in FILES.get(attribute, ()):
        yield from _usable(_file_text(root, path), f"/{path}")
    keys = LABELS.get(attribute, ())
    for path in LABEL_FILES if keys else ():
        text = _file_text(root, path)
        for key in keys:
            yield from _usable(label_value(text, key) or "", f"{key} in /{path}")


def _of_variables(names: tuple[str, ...], env: Mapping[str, str]) -> Iterator[str]:
    for name in names:
        text = env.get(name, "")
        if _UNRESOLVED.search(text):
            warn_once(
                ("unresolved variable", name),
                "%s=%r is ignored: Kubernetes did not replace the reference, since the variable it names must stand "
                "before %s in the container's env",
                name,
                text[:80],
                name,
            )
        else:
            yield from _usable(text, name)


def _usable(text: str, source: str) -> Iterator[str]:
    value = text.strip()
    if len(value) <= _MAX_NAME and value.isascii() and value.isprintable():
        if value:
            yield value
    else:
        debug_once(("not a name", source), "%s is ignored: %r is no name in Kubernetes", source, value[:80])


def _in_a_pod(found: Mapping[str, str | int], env: Mapping[str, str], root: str | Path) -> bool:
    if env.get("JENKINS_URL", "").strip():  # its agents run in pods too, with variables of its own
        return False
    if K8S_POD_NAME in found or K8S_POD_UID in found or env.get("KUBERNETES_SERVICE_HOST", "").strip():
        return True
    return os.path.isdir(Path(root) / SERVICE_ACCOUNT)  # noqa: PTH112 - Path.is_dir raises where it may not look


def _file_text(root: str | Path, path: str) -> str:
    """Return what a regular file of moderate size holds, else an empty text; never wait."""
    try:
        # Without O_NONBLOCK, opening a FIFO waits for a writer.
        descriptor = os.open(Path(root) / path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError("not a regular file")
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(_MAX_FILE + 1)
        finally:
            os.close(descriptor)
        if len(content) > _MAX_FILE:
            raise OSError(f"larger than {_MAX_FILE} bytes")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as fault:
        debug_once(("pod file", path), "/%s is not read: %s", path, fault)
        return ""
    return content.decode("utf-8", "replace")


def _unescaped(match: re.Match[str]) -> str:
    byte, short, long, letter = match.groups()
    if byte:
        # A byte that is no UTF-8 stays apart until the whole text is decoded.
        return chr(int(byte, 16)) if int(byte, 16) < 0x80 else chr(0xDC00 + int(byte, 16))
    if letter:
        if letter not in _LETTERS:
            raise ValueError(f"there is no escape \\{letter}")
        return _LETTERS[letter]
    return chr(int(short or long, 16))
