from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_vllm_docker.recipe.template import fill_template, parse_template


@pytest.mark.parametrize(
    ("text", "values", "filled"),
    [
        ("--port {port}", {"port": 8004}, "--port 8004"),
        ("'{{\"a\":{n}}}'", {"n": 3}, "'{\"a\":3}'"),
        ("{{{{x}}}}", {}, "{{x}}"),
        ("{port:>6}|{name!r}", {"port": 1, "name": "a"}, "     1|'a'"),
        ("no braces", {}, "no braces"),
        ("", {}, ""),
        ("{b}", {"b": True}, "True"),
        ("{u:.2f}", {"u": 0.8}, "0.80"),
    ],
)
def test_it_fills_as_python_does(text: str, values: dict[str, object], filled: str) -> None:
    template = parse_template(text)
    assert template.faults == ()
    assert fill_template(template, values) == filled == text.format(**values)


@pytest.mark.parametrize(
    ("text", "offset", "word"),
    [
        ("a } b", 2, "a '}' without its '{'"),
        ("a { b", 2, "a '{' without its '}'"),
        ('--x {"a":1}', 4, "is not a placeholder"),
        ("${PORT:-8000}", 1, "is not a placeholder"),
        ("{}", 0, "is not a placeholder"),
        ("{0}", 0, "is not a placeholder"),
        ("{x.__class__}", 0, "is not a placeholder"),
        ("{x[0]}", 0, "is not a placeholder"),
        ("{x:>9999999999}", 0, "is not a placeholder"),
        ("{x:{y}}", 0, "is not a placeholder"),
    ],
)
def test_a_stray_brace_is_a_fault_with_its_place(text: str, offset: int, word: str) -> None:
    template = parse_template(text)
    assert template.faults[0].offset == offset
    assert word in template.faults[0].message


def test_all_faults_are_reported() -> None:
    assert [f.offset for f in parse_template("} {a} } {}").faults] == [0, 6, 8]


@given(st.text(alphabet="ab{} :!.\n", max_size=40))
def test_it_never_raises_and_agrees_with_python(text: str) -> None:
    template = parse_template(text)
    values = dict.fromkeys(template.names, "v")
    if template.faults:
        return
    try:
        filled = fill_template(template, values)
    except ValueError:
        with pytest.raises(ValueError):
            text.format(**values)
    else:
        assert filled == text.format(**values)
