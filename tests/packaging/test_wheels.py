"""What is in the built wheels and what they say of themselves."""

from __future__ import annotations

import re

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from support.distributions import NAMES, ROOT, VERSION, Built

_OPENTELEMETRY = SpecifierSet(">=1.38,<2")

DEPENDENCIES: dict[str, dict[str, SpecifierSet]] = {
    "api": {},
    "sdk": {
        "nemo-lens-api": SpecifierSet(f"=={VERSION}"),
        "opentelemetry-api": _OPENTELEMETRY,
        "opentelemetry-sdk": _OPENTELEMETRY,
        "opentelemetry-exporter-otlp-proto-grpc": _OPENTELEMETRY,
        "opentelemetry-exporter-otlp-proto-http": _OPENTELEMETRY,
    },
    "contrib": {"nemo-lens-api": SpecifierSet(f"=={VERSION}")},
}
EXTRAS: dict[str, dict[str, set[str]]] = {
    "api": {},
    "sdk": {"gpu": {"nvidia-ml-py"}, "view": {"viztracer"}, "all": {"nvidia-ml-py", "viztracer"}},
    "contrib": {
        "fastapi": {"fastapi", "opentelemetry-instrumentation-fastapi"},
        "aiohttp": {"aiohttp", "opentelemetry-instrumentation-aiohttp-client"},
        "ray": {"ray"},
        "nccl": {"torch"},
        "all": {
            "fastapi",
            "opentelemetry-instrumentation-fastapi",
            "aiohttp",
            "opentelemetry-instrumentation-aiohttp-client",
            "ray",
            "torch",
        },
    },
}
ENTRY_POINTS: dict[str, dict[str, dict[str, str]]] = {
    "sdk": {
        "console_scripts": {"nemo-lens": "nemo_lens.sdk.cli:main"},
        "nemo_lens.backend": {"otel": "nemo_lens.sdk.backend:BACKEND"},
        "pytest11": {"nemo_lens": "nemo_lens.sdk.pytest_plugin"},
        "opentelemetry_resource_detector": {
            "nemo_lens_gpu": "nemo_lens.sdk.resources.otel_detectors:GpuResourceDetector",
            "nemo_lens_kubernetes": "nemo_lens.sdk.resources.otel_detectors:KubernetesResourceDetector",
            "nemo_lens_local": "nemo_lens.sdk.resources.otel_detectors:LocalResourceDetector",
            "nemo_lens_slurm": "nemo_lens.sdk.resources.otel_detectors:SlurmResourceDetector",
        },
    },
    "contrib": {
        "nemo_lens.instrumentation": {
            "fastapi": "nemo_lens.contrib.fastapi:instrument_fastapi",
            "aiohttp": "nemo_lens.contrib.aiohttp:instrument_aiohttp_client",
            "ray": "nemo_lens.contrib.ray:instrument_ray",
            "nccl": "nemo_lens.contrib.nccl:instrument_nccl",
        },
    },
}


@pytest.mark.parametrize("name", NAMES)
def test_the_wheel_holds_its_sub_package_and_nothing_else(built: dict[str, Built], name: str) -> None:
    """A wheel holds every file of its own sub-package, no namespace root, and the marker that it is typed."""
    files = {item for item in built[name].files() if ".dist-info/" not in item}
    source = ROOT / "packages" / f"nemo-lens-{name}" / "src"
    expected = {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files == expected
    assert all(item.startswith(f"nemo_lens/{name}/") for item in files)
    assert "nemo_lens/__init__.py" not in files
    assert f"nemo_lens/{name}/py.typed" in files


def test_no_source_tree_has_a_namespace_root() -> None:
    """``nemo_lens`` is a PEP 420 namespace in the tree as in the wheels."""
    assert not list(ROOT.glob("packages/*/src/nemo_lens/__init__.py*"))


@pytest.mark.parametrize("name", NAMES)
def test_the_wheel_carries_the_licence(built: dict[str, Built], name: str) -> None:
    """A wheel carries the whole text of the licence that its metadata names."""
    files = built[name].files()
    text = files[f"nemo_lens_{name}-{VERSION}.dist-info/licenses/LICENSE"]
    assert text == (ROOT / "LICENSE").read_bytes()
    assert built[name].metadata()["License-Expression"] == "Apache-2.0"


@pytest.mark.parametrize("name", NAMES)
def test_the_metadata_says_one_version_and_what_python(built: dict[str, Built], name: str) -> None:
    """All wheels have the version of ``VERSION``, their own README, and the Pythons they are tested on."""
    metadata = built[name].metadata()
    assert metadata["Version"] == VERSION
    assert metadata["Requires-Python"] == ">=3.10"
    readme = (ROOT / "packages" / f"nemo-lens-{name}" / "README.md").read_text(encoding="utf-8")
    assert metadata.get_payload().strip() == readme.strip()
    classifiers = metadata.get_all("Classifier", [])
    assert "Typing :: Typed" in classifiers
    pythons = re.findall(r"Python :: (3\.\d+)", " ".join(classifiers))
    assert pythons == ["3.10", "3.11", "3.12", "3.13"]


@pytest.mark.parametrize("name", NAMES)
def test_dependencies_and_extras(built: dict[str, Built], name: str) -> None:
    """A wheel depends on what the design allows, pins its siblings exactly, and brings the rest by extra."""
    metadata = built[name].metadata()
    requirements = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    always = {item.name: item.specifier for item in requirements if item.marker is None}
    assert always == DEPENDENCIES[name]
    assert set(metadata.get_all("Provides-Extra", [])) == set(EXTRAS[name])
    for extra, expected in EXTRAS[name].items():
        brought = {item.name for item in requirements if item.marker and item.marker.evaluate({"extra": extra})}
        assert brought == expected


@pytest.mark.parametrize("name", NAMES)
def test_entry_points(built: dict[str, Built], name: str) -> None:
    """A wheel registers the entry points of the design; those of the SDK lead to modules that it holds."""
    files = built[name].files()
    registered = built[name].entry_points() if f"nemo_lens_{name}-{VERSION}.dist-info/entry_points.txt" in files else {}
    assert registered == ENTRY_POINTS.get(name, {})
    if name == "sdk":
        for point in (point for group in registered.values() for point in group.values()):
            module = point.partition(":")[0].replace(".", "/")
            assert {f"{module}.py", f"{module}/__init__.py"} & set(files), point
