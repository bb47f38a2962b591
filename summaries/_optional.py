"""Packages that not everybody has: imported where they are needed, and named where they are not."""

from importlib import import_module
from typing import Any


def optional(module: str, extra: str) -> Any:
    """A module of a package that one of the project's extras brings.

    Raises:
        ModuleNotFoundError: the package is not installed; the message has the extra.
    """
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        message = f"{package} is not installed: pip install 'optkit[{extra}]'"
        raise ModuleNotFoundError(message, name=package) from None
