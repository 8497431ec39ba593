"""No text becomes markup by itself."""

import pytest

from spatialpdvi.report.markup import Markup, data_uri, escaped, join, table, tag


def test_children_and_attributes_are_escaped():
    assert tag("p", "<b>&", title="\"><i a='") == '<p title="&quot;&gt;&lt;i a=&#x27;">&lt;b&gt;&amp;</p>'


def test_markup_is_not_escaped_again():
    assert tag("p", tag("b", "1 < 2"), " and ", None, tag("img", src="x")) == '<p><b>1 &lt; 2</b> and <img src="x"></p>'


@pytest.mark.parametrize(
    "made",
    [lambda m: m + "<x>", lambda m: "<x>" + m, lambda m: f"{m}<x>", lambda m: m.replace("b", "i"), lambda m: m.upper()],
)
def test_what_is_made_of_markup_is_plain_text(made):
    assert "<" not in tag("p", made(tag("b", "bold")))[len("<p>") : -len("</p>")]


def test_joined_parts_are_escaped_one_by_one():
    assert join(["<", Markup("<br>"), None], between="&") == "&lt;&amp;<br>"


def test_what_cannot_be_shown_becomes_a_question_mark():
    assert escaped("a\x00b\u202ec\udcffd\n") == "a?b?c?d?"
    assert escaped("one\ntwo\x1b", keep="\n") == "one\ntwo?"
    escaped("\ud800é日本").encode("utf-8")


def test_names_of_attributes():
    assert tag("meta", http_equiv="a", name_="b", class_=None) == '<meta http-equiv="a" name="b">'


def test_a_table_has_its_words_on_the_left_and_numbers_on_the_right():
    assert '<tr><td>a</td><td class="number">1</td></tr>' in table(["x", "n"], [["a", "1"]])


def test_a_picture_is_its_own_address():
    assert data_uri(b"\x89PNG") == "data:image/png;base64,iVBORw=="
