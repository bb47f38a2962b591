"""tf.flags and tf.app.run: a script with flags, started as a user does."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import optkit as tf

flags = tf.app.flags
flags.DEFINE_float("rate", 0.5, "The rate, in % of a step.")
flags.DEFINE_integer("steps", 3, "Steps.")
flags.DEFINE_string("logdir", None, "Where to.")
flags.DEFINE_boolean("verbose", False, "Talk.")
flags.DEFINE_enum("mode", "train", ["train", "eval"], "What.")
flags.DEFINE_list("layers", ["4"], "Sizes.")
FLAGS = flags.FLAGS


def main(argv):
    FLAGS.steps += 1
    print(FLAGS.rate, FLAGS.steps, FLAGS.logdir, FLAGS.verbose, FLAGS.mode, FLAGS.layers, argv[1:])
    return 3


if __name__ == "__main__":
    tf.app.run()
"""


@pytest.fixture
def started(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)

    def start(*arguments):
        return subprocess.run(
            [sys.executable, "-W", "error", path, *arguments], capture_output=True, text=True
        )

    return start


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "0.5 4 None False train ['4'] []"),
        (
            ("--rate=0.1", "--steps", "7", "--verbose", "--mode=eval", "--layers=8,2", "left"),
            "0.1 8 None True eval ['8', '2'] ['left']",
        ),
        (("--noverbose", "--logdir=/x y"), "0.5 4 /x y False train ['4'] []"),
        (("--verbose=false",), "0.5 4 None False train ['4'] []"),
    ],
)
def test_a_script_reads_its_flags_and_exits_with_its_result(started, arguments, expected):
    done = started(*arguments)
    assert (done.stdout.strip(), done.stderr, done.returncode) == (expected, "", 3)


@pytest.mark.parametrize("argument", ["--steps=many", "--mode=dance", "--verbose=perhaps"])
def test_a_bad_value_is_told_in_a_line(started, argument):
    done = started(argument)
    assert done.returncode == 2
    assert argument[2:].split("=")[0] in done.stderr.splitlines()[-1]


def test_a_flag_is_defined_once_and_an_unknown_one_is_told():
    code = (
        "import optkit as tf\n"
        "tf.flags.DEFINE_string('a', 'x', '')\n"
        "for ask in (lambda: tf.flags.DEFINE_string('a', 'y', ''), lambda: tf.flags.FLAGS.b):\n"
        "    try:\n"
        "        ask()\n"
        "    except (ValueError, AttributeError) as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "flag_name: the flag 'a' is defined already",
        "no flag is called 'b'; there are ['a']",
    ]
