"""What griffe is told of the sources, for mkdocstrings: typed signatures, and references between names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import griffe

# Decorators that say how a function is used, and what stands beside its name for them.
_USES = {"contextmanager": "context-manager", "fixture": "fixture"}
_TYPE_VARIABLES = ("TypeVar", "ParamSpec")
# :func:`redact_value`, as the docstrings refer to other names.
_REFERENCE = re.compile(r":(?:func|meth|class):`([\w.]+)`")


class TypedSignatures(griffe.Extension):
    """Show ``_NAME_signature`` for ``NAME`` in its module: the function that runs is narrower, and untyped."""

    def on_module(self, *, mod: griffe.Module, **_: Any) -> None:
        """Give each such function the signature and the docstring of the other."""
        for name, typed in list(mod.members.items()):
            target = mod.members.get(name.removeprefix("_").removesuffix("_signature"))
            if (
                name.endswith("_signature")
                and isinstance(typed, griffe.Function)
                and isinstance(target, griffe.Function)
            ):
                target.parameters = typed.parameters
                target.returns = typed.returns
                target.docstring = typed.docstring


class PublicParameters(griffe.Extension):
    """Leave parameters with an underscore out of signatures: they are for the project's own calls."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Keep the public parameters; the ``__init__`` of a dataclass has been made by now."""
        public = [parameter for parameter in func.parameters if not parameter.name.startswith("_")]
        func.parameters = griffe.Parameters(*public)


class Uses(griffe.Extension):
    """Mark context managers and fixtures, whose signatures do not say it."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Add a label for each decorator that is known."""
        for decorator in func.decorators:
            name = re.split(r"\W", str(decorator.value).partition("(")[0])[-1]
            func.labels.update(filter(None, (_USES.get(name),)))


class Signatures(griffe.Extension):
    """Show what a signature means to somebody who does not have the module before him.

    That is the value of a constant, what the alias of a type stands for, and type variables without their underscore.
    """

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Write annotations and defaults anew, now that all modules are there to look names up in."""
        for function in _functions(pkg):
            function.returns = _spelled_out(function.returns)
            for parameter in function.parameters:
                parameter.annotation = _spelled_out(parameter.annotation)
                parameter.default = _spelled_out(parameter.default)


class References(griffe.Extension):
    """Turn references in docstrings into links, where the name is in the reference."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Write references as mkdocs-autorefs reads them."""
        if obj.docstring is not None:
            obj.docstring.value = _REFERENCE.sub(lambda match: _link(obj, match[1]), obj.docstring.value)


def _link(obj: griffe.Object, name: str) -> str:
    try:
        target = obj.resolve(name)
    except griffe.NameResolutionError:
        target = name
    return f'<autoref optional identifier="{target}">`{name.rpartition(".")[2]}`</autoref>'


def _functions(parent: griffe.Object) -> Iterator[griffe.Function]:
    for member in parent.members.values():
        if member.is_alias:
            continue
        if isinstance(member, griffe.Function):
            yield member
        elif isinstance(member, griffe.Module | griffe.Class):
            yield from _functions(member)


def _spelled_out(part: Any) -> Any:
    """Return a part of a signature, an expression or a list of them, with names replaced by what they stand for."""
    if isinstance(part, list):
        return [_spelled_out(each) for each in part]
    if isinstance(part, griffe.ExprName):
        value = _value(part)
        if isinstance(value, griffe.ExprCall):
            return part.name.lstrip("_") if str(value.function) in _TYPE_VARIABLES else part
        return part if value is None else _spelled_out(value)
    if isinstance(part, griffe.Expr):
        fields = (field.name for field in dataclasses.fields(part))
        return dataclasses.replace(part, **{name: _spelled_out(getattr(part, name)) for name in fields})
    return part


def _value(name: griffe.ExprName) -> str | griffe.Expr | None:
    """Return what is assigned to a name of these sources; None where it is not a variable, or not of these sources."""
    if not isinstance(name.parent, griffe.Object):
        return None
    try:
        found = name.parent.modules_collection[name.canonical_path]
        target = found.final_target if found.is_alias else found
    except (KeyError, griffe.AliasResolutionError):
        return None
    return target.value if isinstance(target, griffe.Attribute) else None
