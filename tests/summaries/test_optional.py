import json.decoder

import pytest

from summaries._optional import optional


def test_a_package_that_is_missing_is_named_with_its_extra():
    message = r"^no_such_package is not installed: pip install 'optkit\[notebook\]'$"
    with pytest.raises(ModuleNotFoundError, match=message):
        optional("no_such_package.inner", "notebook")


def test_what_a_package_itself_lacks_is_told_as_it_is():
    assert optional("json.decoder", "notebook") is json.decoder
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'json\.no_such'"):
        optional("json.no_such", "notebook")
