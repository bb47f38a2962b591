import warnings

import pytest

from summaries.tags import TagBook, clean_tag


# TensorFlow 1's names for the same strings.
@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("a b (c)%", "a_b__c__"),
        ("Episode / Total (mean)", "Episode_/_Total__mean_"),
        ("/lead", "lead"),
        ("//x/y", "x/y"),
        ("größe", "größe"),
        ("a-b.c/d_e1", "a-b.c/d_e1"),
    ],
)
def test_p064_names_are_cleaned_as_in_tensorflow(name, tag):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        assert clean_tag(name) == tag
    assert clean_tag(tag) == tag


def test_p064_a_changed_name_is_told_once_with_both_names():
    with pytest.warns(RuntimeWarning, match=r"'loss \(mean\)'.*'loss__mean_'") as caught:
        assert {clean_tag("loss (mean)") for _ in range(3)} == {"loss__mean_"}
    assert len(caught) == 1


def test_p063_a_colon_is_replaced_in_silence():
    assert clean_tag("OptimizeLoss/gradients/dense/kernel:0") == (
        "OptimizeLoss/gradients/dense/kernel_0"
    )


@pytest.mark.parametrize("name", ["", "/", "///"])
def test_p064_an_empty_tag_is_refused(name):
    with pytest.raises(ValueError, match=f"not {name!r}"):
        clean_tag(name)


@pytest.mark.parametrize("name", [None, 3, b"loss"])
def test_a_tag_is_a_string(name):
    with pytest.raises(TypeError, match="a tag is a string"):
        clean_tag(name)


def test_p064_two_names_for_one_tag_are_told_once():
    book = TagBook()
    assert book.clean("x:0") == "x_0"
    assert book.clean("x:0") == "x_0"
    with pytest.warns(RuntimeWarning, match="'x:0' and 'x_0'.*the tag 'x_0'") as caught:
        assert {book.clean("x_0") for _ in range(3)} == {"x_0"}
    assert len(caught) == 1


def test_tags_of_two_runs_do_not_collide():
    assert TagBook().clean("x:0") == TagBook().clean("x_0")
