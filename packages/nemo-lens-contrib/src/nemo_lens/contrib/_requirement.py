"""The packages that the integrations need, imported when an integration is called and never before."""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


def require(module_name: str, extra: str) -> ModuleType:
    """Import a module that an extra of this distribution brings.

    Args:
        module_name: full name of the module.
        extra: the extra of ``nemo-lens-contrib`` that installs it.

    Returns:
        The module.

    Raises:
        ImportError: when it cannot be imported; the message says what is missing and how to install it.
    """
    try:
        return importlib.import_module(module_name)
    except ImportError as fault:
        raise ImportError(
            f"the {extra!r} integration needs {module_name!r}, which cannot be imported: {fault}; "
            f"pip install 'nemo-lens-contrib[{extra}]'",
            name=fault.name,
            path=fault.path,
        ) from fault
