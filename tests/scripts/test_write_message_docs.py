"""What is generated of the documentation is what the script would write."""

from __future__ import annotations

from scripts.write_message_docs import PAGE, SCHEMA, page_text, schema_text


def test_the_schema_is_that_of_the_messages() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == schema_text()


def test_the_pages_tables_are_those_of_the_messages() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == page_text(page)
