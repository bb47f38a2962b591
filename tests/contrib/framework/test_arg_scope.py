"""Default arguments by arg_scope: nesting, reuse, what a call gives itself, refusals."""

import threading

import pytest

from optkit.contrib.framework import (
    add_arg_scope,
    arg_scope,
    arg_scope_func_key,
    arg_scoped_arguments,
    current_arg_scope,
    has_arg_scope,
)


@add_arg_scope
def first(x, a=1, b=2):
    """Doc."""
    return x, a, b


@add_arg_scope
def second(x, a=1, c=3):
    return x, a, c


@add_arg_scope
def anything(**kwargs):
    return kwargs


class Holder:
    @add_arg_scope
    def method(self, a=1):
        return a


def test_several_functions_at_once():
    with arg_scope([first, second], a=10):
        assert first(0) == (0, 10, 2)
        assert second(0) == (0, 10, 3)
    assert first(0) == (0, 1, 2)


def test_what_a_call_gives_itself_wins():
    with arg_scope((first,), a=10, b=20):
        assert first(0, a=5) == (0, 5, 20)
        assert first(0, 5) == (0, 5, 20)
        assert first(0, 5, 6) == (0, 5, 6)


def test_inner_scopes_add_to_outer_ones():
    with arg_scope([first, second], a=10):
        with arg_scope([first], b=20):
            assert first(0) == (0, 10, 20)
            assert second(0) == (0, 10, 3)
            with arg_scope([first], a=30):
                assert first(0) == (0, 30, 20)
        assert first(0) == (0, 10, 2)


def test_a_scope_can_be_entered_again():
    """It then is in force alone, as in TensorFlow's tf_slim."""
    with arg_scope([first], a=10) as scope:
        pass
    assert first(0) == (0, 1, 2)
    with arg_scope([first, second], b=7, a=3):
        with arg_scope(scope):
            assert first(0) == (0, 10, 2)
            assert second(0) == (0, 1, 3)
        assert first(0) == (0, 3, 7)


def test_a_function_can_return_its_scope():
    def scope_of(a):
        with arg_scope([first], a=a) as scope:
            return scope

    with arg_scope(scope_of(4)):
        assert first(0) == (0, 4, 2)


def test_an_error_leaves_the_scope():
    with pytest.raises(ZeroDivisionError), arg_scope([first], a=10):
        _ = 1 / 0
    assert current_arg_scope() == {}


def test_methods_and_functions_of_any_arguments():
    with arg_scope([Holder.method, anything], a=4):
        assert Holder().method() == 4
        assert anything(b=5) == {"a": 4, "b": 5}


def test_functions_of_one_name_do_not_share_defaults():
    def make(result):
        @add_arg_scope
        def same(a=1):
            return result, a

        return same

    one, two = make("one"), make("two")
    with arg_scope([one], a=9):
        assert one() == ("one", 9)
        assert two() == ("two", 1)


def test_threads_have_scopes_of_their_own():
    seen = []
    with arg_scope([first], a=10):
        thread = threading.Thread(target=lambda: seen.append(first(0)))
        thread.start()
        thread.join()
    assert seen == [(0, 1, 2)]


def test_what_can_be_asked():
    assert has_arg_scope(first)
    assert not has_arg_scope(len)
    assert arg_scoped_arguments(first) == ("a", "b")
    assert first.__name__ == "first"
    assert first.__doc__ == "Doc."
    with arg_scope([first], a=10):
        assert current_arg_scope() == {arg_scope_func_key(first): {"a": 10}}


REFUSED = [
    (ValueError, r"<built-in function len> is not decorated with add_arg_scope", [len], {"a": 1}),
    (ValueError, "expected no arguments beside a scope", {}, {"a": 1}),
    (TypeError, "expected a list of functions, or a scope", first, {"a": 1}),
]


@pytest.mark.parametrize(("error", "message", "given", "arguments"), REFUSED)
def test_refusals(error, message, given, arguments):
    with pytest.raises(error, match=message), arg_scope(given, **arguments):
        pass


def test_an_argument_that_a_function_does_not_take():
    with arg_scope([first, second], c=5):
        assert second(0) == (0, 1, 5)
        with pytest.raises(TypeError, match="first: arg_scope gives it c, which it does not take"):
            first(0)
    with pytest.raises(ValueError, match=r"len.* is not decorated"):
        arg_scoped_arguments(len)
