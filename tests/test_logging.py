"""tf.logging: levels, and messages below WARN once they are asked for."""

from __future__ import annotations

import logging

import pytest

import optkit as tf

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
}


@pytest.mark.parametrize("name", LEVELS)
def test_each_function_logs_at_its_level(caplog, name):
    tf.logging.set_verbosity(tf.logging.DEBUG)
    getattr(tf.logging, name)("step %d of %d", 1, 2)
    tf.logging.log(LEVELS[name], "as well")
    assert [(r.name, r.levelno, r.getMessage()) for r in caplog.records] == [
        ("optkit", LEVELS[name], "step 1 of 2"),
        ("optkit", LEVELS[name], "as well"),
    ]


def test_what_is_below_the_verbosity_is_not_logged(caplog):
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.logging.warn("unsaid")
    tf.logging.error("said")
    assert tf.logging.get_verbosity() == tf.logging.ERROR
    assert [record.getMessage() for record in caplog.records] == ["said"]
