"""Names of summaries: cleaned as TensorFlow 1 cleans them, and told apart."""

import re
from functools import lru_cache

from summaries._warn import warn_once

_NOT_ALLOWED = re.compile(r"[^-/\w.]")


def clean_tag(name: str) -> str:
    """The tag under which a name is written: letters, digits and `-_./`, without a leading slash.

    Every other character becomes an underscore, as in TensorFlow 1. That `:` becomes `_`, as in
    `w:0`, is the rule and goes unsaid; other changes are warned of, once for each name. A tag is
    its own cleaned form.

    Raises:
        TypeError: the name is not a string.
        ValueError: nothing is left of it.
    """
    if not isinstance(name, str):
        raise TypeError(f"a tag is a string, not {type(name).__name__} {name!r:.60}")
    tag = _cleaned(name)
    if not tag:
        raise ValueError(f"a tag needs at least one character that is not a slash, not {name!r}")
    if tag not in (name, name.replace(":", "_")):
        warn_once("tag", name, message=f"the name {name!r} is written as the tag {tag!r}")
    return tag


def utf8(what: str, text: str) -> bytes:
    """The bytes of a text.

    Raises:
        TypeError: it is no string; the message says what it is.
        ValueError: it has half of a surrogate pair, which no file can hold.
    """
    if not isinstance(text, str):
        raise TypeError(f"{what} is a string, not {type(text).__name__} {text!r:.60}")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} has a lone surrogate, which is no text: {text!r:.60}") from None


@lru_cache(maxsize=1 << 14)
def _cleaned(name: str) -> str:
    return _NOT_ALLOWED.sub("_", name).lstrip("/")


class TagBook:
    """The names seen in one run: warns when two of them become one tag."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def clean(self, name: str) -> str:
        """As `clean_tag`, with one warning for each further name that yields a tag in use."""
        tag = clean_tag(name)
        first = self._names.setdefault(tag, name)
        if first != name:
            message = f"the names {first!r} and {name!r} are both written as the tag {tag!r}"
            warn_once("collision", first, name, message=message)
        return tag
