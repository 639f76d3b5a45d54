"""Values are replaced where they stand; every other character stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resize_pos.core.json_edit import replace_value

# text, path, value, text after
CASES: list[tuple[str, tuple[str, ...], Any, str]] = [
    ('{"a": 224}', ("a",), 384, '{"a": 384}'),
    ('{ "a" :224 ,"b":1e5}\n', ("a",), 384, '{ "a" :384 ,"b":1e5}\n'),
    ('{"a": 1, "b": {"a": 2}}', ("b", "a"), 3, '{"a": 1, "b": {"a": 3}}'),
    ('{"a": [\n  3,\n  224,\n  224\n]}', ("a",), [3, 384, 512], '{"a": [\n  3,\n  384,\n  512\n]}'),
    ('{"a": 224}', ("a",), [384, 512], '{"a": [384, 512]}'),
    ('{"a": {"h" : 1,\n"w":2}}', ("a",), {"h": 3, "w": 2}, '{"a": {"h" : 3,\n"w":2}}'),
    ('{"a": 1}', ("b",), 2, '{"a": 1, "b": 2}'),
    ('{"a":1}', ("b",), 2, '{"a":1,"b":2}'),
    ("{}", ("b", "c"), 2, '{"b": {"c": 2}}'),
    ('{\n  "a": 1\n}\n', ("b",), 2, '{\n  "a": 1,\n  "b": 2\n}\n'),
    (
        '{\n\t"a": {\n\t\t"x": 1\n\t}\n}',
        ("a", "y"),
        2,
        '{\n\t"a": {\n\t\t"x": 1,\n\t\t"y": 2\n\t}\n}',
    ),
    ('{"a": 1, "a": 2}', ("a",), 3, '{"a": 1, "a": 3}'),
    ('{"\\u0061": 1}', ("a",), 3, '{"\\u0061": 3}'),
    ('{"k": "}\\",{", "a": 1}', ("a",), 2, '{"k": "}\\",{", "a": 2}'),
    ('{"a": 1.0}', ("a",), 1, '{"a": 1}'),
]


@pytest.mark.parametrize(("text", "path", "value", "after"), CASES)
def test_only_the_value_changes(text: str, path: tuple[str, ...], value: Any, after: str) -> None:
    assert replace_value(text, path, value) == after


def test_a_key_cannot_be_added_to_a_number() -> None:
    with pytest.raises(ValueError, match="no object"):
        replace_value('{"a": 1}', ("a", "b"), 2)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.dictionaries(st.text(), JSON, min_size=1, max_size=5),
    JSON,
    st.data(),
    st.sampled_from([None, 0, 1, 4, "\t"]),
)
def test_the_new_text_says_the_new_document(
    document: dict[str, Any], value: Any, data: st.DataObject, indent: Any
) -> None:
    key = data.draw(st.sampled_from(list(document)) | st.text())
    text = json.dumps(document, indent=indent)
    changed = replace_value(text, (key,), value)
    assert json.loads(changed) == {**document, key: value}
    assert list(json.loads(changed)) == list({**document, key: value})
