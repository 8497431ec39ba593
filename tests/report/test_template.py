"""No text becomes markup by itself, and a name that a template misspells is an error."""

import jinja2
import pytest

from spatialpdvi.report.page import environment
from spatialpdvi.report.pictures import Picture


def _render(template, **values):
    return environment().from_string(template).render(**values)


def test_texts_are_escaped_in_elements_and_attributes():
    text = "\"><i a='&"
    assert _render('<p title="{{ x }}">{{ x }}</p>', x=text) == (
        '<p title="&#34;&gt;&lt;i a=&#39;&amp;">&#34;&gt;&lt;i a=&#39;&amp;</p>'
    )


def test_what_is_made_of_markup_and_text_is_escaped_again():
    macro = "{% macro bold(x) %}<b>{{ x }}</b>{% endmacro %}"
    assert _render(macro + "{{ bold(x) }}", x="<") == "<b>&lt;</b>"
    assert _render(macro + "{{ bold(x) ~ x }}", x="<") == "<b>&lt;</b>&lt;"
    assert _render(macro + "{{ x|shown ~ bold(x) }}", x="<") == "&lt;<b>&lt;</b>"
    assert _render("{{ x|join(', ') }}", x=["<", "&"]) == "&lt;, &amp;"


def test_what_cannot_be_shown_becomes_a_question_mark():
    assert _render("{{ x }}", x="a\x00b\u202ec\udcffd\n") == "a?b?c?d?"
    assert _render("{{ x|shown }}", x=["\x1b", "\ud800é日本"]) == "?, ?é日本"


def test_unknown_numbers_are_dashes():
    assert [_render("{{ x|text }}", x=x) for x in (None, float("nan"), 0.12345)] == ["–", "–", "0.123"]


@pytest.mark.parametrize("template", ["{{ absent }}", "{% if absent %}{% endif %}", "{{ picture.absent }}"])
def test_a_misspelled_name_is_an_error(template):
    with pytest.raises(jinja2.UndefinedError, match="absent"):
        _render(template, picture=Picture(b"", 1, 1))


def test_a_picture_is_its_own_address():
    assert Picture(b"\x89PNG", 1, 1).uri == "data:image/png;base64,iVBORw=="
