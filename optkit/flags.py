"""`tf.flags` (and `tf.app.flags`): command-line flags of a script, over argparse.

    flags = tf.app.flags
    flags.DEFINE_float("learning_rate", 0.01, "The rate.")
    FLAGS = flags.FLAGS

The command line is read when a flag is first asked for. Arguments that are no flags are left to
the script, as with TF.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

__all__ = [
    "FLAGS",
    "DEFINE_bool",
    "DEFINE_boolean",
    "DEFINE_enum",
    "DEFINE_float",
    "DEFINE_integer",
    "DEFINE_list",
    "DEFINE_string",
]


class _Flags:
    """The values of all flags, as attributes."""

    def __init__(self) -> None:
        self.__dict__["_defaults"] = {}
        self.__dict__["_values"] = None
        self.__dict__["_rest"] = []
        self.__dict__["_parser"] = argparse.ArgumentParser(allow_abbrev=False)

    def __call__(self, argv: Sequence[str] | None = None) -> list[str]:
        """Read the command line; returns what is no flag, the program's name first."""
        arguments = list(sys.argv if argv is None else argv)
        values, rest = self._parser.parse_known_args(arguments[1:])
        self.__dict__["_values"] = vars(values)
        self.__dict__["_rest"] = arguments[:1] + rest
        return list(self._rest)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._values is None:
            self()
        if name not in self._values:
            if name not in self._defaults:
                raise AttributeError(
                    f"no flag is called {name!r}; there are {sorted(self._defaults)}"
                )
            self()  # it was defined after the command line had been read
        return self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        getattr(self, name)
        self._values[name] = value

    def __contains__(self, name: str) -> bool:
        return name in self._defaults

    def __dir__(self) -> list[str]:
        return sorted(self._defaults)

    def flag_values_dict(self) -> dict[str, Any]:
        """All flags by name."""
        return {name: getattr(self, name) for name in self._defaults}

    def _define(self, name: str, default: Any, text: str | None, **settings: Any) -> None:
        if name in self._defaults:
            raise ValueError(f"flag_name: the flag {name!r} is defined already")
        self._defaults[name] = default
        help_text = (text or "").replace("%", "%%")
        self._parser.add_argument(f"--{name}", default=default, help=help_text, **settings)


FLAGS = _Flags()
"""The flags of this process."""


def _definer(convert: Callable[[str], Any], kind: str) -> Callable[..., None]:
    def define(
        flag_name: str, default_value: Any, docstring: str | None = None, required: bool = False
    ) -> None:
        FLAGS._define(flag_name, default_value, docstring, type=convert, required=required)

    define.__doc__ = f"Define a flag that holds {kind}."
    return define


DEFINE_string = _definer(str, "text")
DEFINE_integer = _definer(int, "a whole number")
DEFINE_float = _definer(float, "a number")
DEFINE_list = _definer(lambda text: text.split(","), "texts, separated by commas")


def DEFINE_enum(  # noqa: N802 - TF1's name
    flag_name: str, default_value: Any, enum_values: Sequence[str], docstring: str | None = None
) -> None:
    """Define a flag that holds one of some texts."""
    FLAGS._define(flag_name, default_value, docstring, choices=list(enum_values))


def _truth(text: str) -> bool:
    known = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
    if text.lower() not in known:
        raise argparse.ArgumentTypeError(f"expected true or false, got {text!r}")
    return known[text.lower()]


def DEFINE_bool(  # noqa: N802 - TF1's name
    flag_name: str, default_value: Any, docstring: str | None = None
) -> None:
    """Define a flag that holds a truth value: `--name`, `--noname` or `--name=false`."""
    FLAGS._define(flag_name, default_value, docstring, type=_truth, nargs="?", const=True)
    FLAGS._parser.add_argument(
        f"--no{flag_name}",
        dest=flag_name,
        action="store_false",
        help=argparse.SUPPRESS,
        default=argparse.SUPPRESS,
    )


DEFINE_boolean = DEFINE_bool
