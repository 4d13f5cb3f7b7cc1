"""What the kubelet does for a container: environment resolved, downward-API volumes written, labels quoted."""

from __future__ import annotations

import re
import shutil
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_GO_LETTERS = {7: "a", 8: "b", 12: "f", 10: "n", 13: "r", 9: "t", 11: "v", 34: '"', 92: "\\"}
_KEYED = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
# What a variable may hold and a file may not: the kubelet refuses such an item of a volume.
_VARIABLES_ONLY = ("spec.", "status.")


def atomic_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a volume as the kubelet does: a dated folder, ``..data`` onto it by rename, a link per file onto that."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "..data"
    old = data.resolve() if data.is_symlink() else None
    dated = folder / f"..2026_01_01_00_00_00.{1 if old is None else int(old.suffix[1:]) + 1}"
    dated.mkdir()
    for name, content in files.items():
        (dated / name).write_bytes(content)
    swap = folder / "..data_tmp"
    swap.symlink_to(dated.name)
    swap.rename(data)
    for name in files:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    if old is not None:
        shutil.rmtree(old)


def go_quoted(text: str) -> str:
    """Quote as Go's ``strconv.Quote``, that is ``%q``."""
    return f'"{"".join(map(_go_escaped, text))}"'


def formatted_map(pairs: Mapping[str, str]) -> str:
    """Write labels or annotations as the kubelet's ``FormatMap``: sorted, quoted, no line end at the end."""
    return "\n".join(f"{key}={go_quoted(pairs[key])}" for key in sorted(pairs))


def container_environment(pod: Mapping[str, Any], container: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of a container: in order, references to earlier ones resolved, others left as they are."""
    environment: dict[str, str] = {}
    for entry in container["env"]:
        if "value" in entry:
            value = re.sub(
                r"\$(?:\$|\(([^()]*)\))",
                lambda match: "$" if match[1] is None else environment.get(match[1], match[0]),
                entry["value"],
            )
        else:
            value = field(pod, entry["valueFrom"]["fieldRef"]["fieldPath"])
        environment[entry["name"]] = value
    return environment


def write_volumes(root: Path, pod: Mapping[str, Any], container: Mapping[str, Any]) -> None:
    """Write the downward-API volumes that a container mounts."""
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    for mount in container["volumeMounts"]:
        items = volumes[mount["name"]].get("downwardAPI", {}).get("items", [])
        files = {}
        for item in items:
            path = item["fieldRef"]["fieldPath"]
            assert not path.startswith(_VARIABLES_ONLY), f"{path} cannot be had in a volume"
            files[item["path"]] = field(pod, path).encode()
        if items:
            atomic_files(root / mount["mountPath"].lstrip("/"), files)


def field(pod: Mapping[str, Any], path: str) -> str:
    """Return what a ``fieldPath`` says of a pod."""
    keyed = _KEYED.fullmatch(path)
    if keyed:
        return str(pod["metadata"][keyed[1]].get(keyed[2], ""))
    value: Any = pod
    for part in path.split("."):
        value = value[part]
    return formatted_map(value) if path in ("metadata.labels", "metadata.annotations") else str(value)


def _go_escaped(character: str) -> str:
    code = ord(character)
    if code in _GO_LETTERS:
        return f"\\{_GO_LETTERS[code]}"
    if character == " " or unicodedata.category(character)[0] in "LMNPS":  # unicode.IsPrint
        return character
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
