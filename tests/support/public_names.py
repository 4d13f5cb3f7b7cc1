"""The public names of the three wheels with their docstrings, read from the sources without importing them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import griffe

from support.built_site import ROOT

WHEELS = ("nemo-lens-api", "nemo-lens-sdk", "nemo-lens-contrib")

# What ``__all__`` says is public there.
PUBLIC_MODULES = (
    "nemo_lens.api",
    "nemo_lens.api.instruments",
    "nemo_lens.contrib.ray",
    "nemo_lens.sdk.logging_bridge",
    "nemo_lens.sdk.resources",
    "nemo_lens.sdk.testing",
)
# Every function without an underscore is public there; the pytest plug-in has hooks of pytest's besides.
PUBLIC_FUNCTIONS = (
    "nemo_lens.contrib.aiohttp",
    "nemo_lens.contrib.fastapi",
    "nemo_lens.contrib.nccl",
    "nemo_lens.sdk.pytest_plugin",
)
# An ``__all__`` for the modules beside it alone.
INTERNAL_MODULES = ("nemo_lens.sdk._compat", "nemo_lens.sdk._compat.logs", "nemo_lens.sdk.exporters")

_HOOKS = "pytest_"


def load(root: Path = ROOT) -> griffe.Module:
    """Return the namespace ``nemo_lens`` of a checkout.

    Args:
        root: the checkout.
    """
    loader = griffe.GriffeLoader(
        search_paths=[root / "packages" / wheel / "src" for wheel in WHEELS],
        allow_inspection=False,
        extensions=griffe.load_extensions(str(ROOT / "docs/reference_pages/docstrings.py")),
    )
    namespace = loader.load("nemo_lens", submodules=True)
    loader.resolve_aliases(external=False)
    assert isinstance(namespace, griffe.Module)
    return namespace


def public_names(namespace: griffe.Module) -> Iterator[tuple[str, bool]]:
    """Return each public name, members of classes included, and whether it has a docstring."""
    for module in PUBLIC_MODULES:
        for name in _exports(_module(namespace, module)):
            yield from _with_members(f"{module}.{name}", _module(namespace, module)[name])
    for module in PUBLIC_FUNCTIONS:
        for name, member in _module(namespace, module).members.items():
            if not name.startswith(("_", _HOOKS)) and not member.is_alias and member.is_function:
                yield f"{module}.{name}", member.docstring is not None


def modules_with_exports(namespace: griffe.Module) -> Iterator[str]:
    """Return the modules that have an ``__all__``."""
    for module in namespace.modules.values():
        if module.is_alias:
            continue
        if "__all__" in module.members:
            yield module.path
        yield from modules_with_exports(module)


def undocumented(names: Iterator[tuple[str, bool]], documented: set[str]) -> list[str]:
    """Return what is wrong, in words.

    Args:
        names: what ``public_names`` returns.
        documented: the names that are in the reference.
    """
    return [
        f"{name} {'is not in docs/reference/' if has_docstring else 'has no docstring'}"
        for name, has_docstring in names
        if not has_docstring or name not in documented
    ]


def _module(namespace: griffe.Module, path: str) -> griffe.Module:
    module = namespace[path.removeprefix("nemo_lens.")]
    assert isinstance(module, griffe.Module)
    return module


def _exports(module: griffe.Module) -> list[str]:
    return [str(name) for name in module.exports or ()]


def _with_members(path: str, item: griffe.Object | griffe.Alias) -> Iterator[tuple[str, bool]]:
    target = item.final_target if isinstance(item, griffe.Alias) else item
    yield path, target.docstring is not None
    if isinstance(target, griffe.Class):
        for name, member in target.members.items():
            # A field is described by the docstring of its class.
            if not name.startswith("_") and (member.is_function or "property" in member.labels):
                yield f"{path}.{name}", member.docstring is not None
