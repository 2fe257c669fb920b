"""GET /docs: what there is to ask for, made of the OpenAPI document; the page loads nothing from anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #1c1c1c; background: #fff }
code { font: 0.95em ui-monospace, monospace }
h2 { margin: 2rem 0 0; font-size: 1.1rem }
p { margin: 0.2rem 0 0.6rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.8rem 0.3rem 0; border-top: 1px solid #ddd }
@media (prefers-color-scheme: dark) { body { color: #e6e6e6; background: #161616 } td, th { border-color: #444 }
       a { color: #8ab4f8 } }
"""

Json = Mapping[str, Any]


def docs_page(document: Json) -> str:
    """Return the page of an OpenAPI document."""
    title, about = escape(document["info"]["title"]), escape(document["info"]["description"])
    parts = "\n".join(_operations(document))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n<p>{about}</p>\n"
        f'<p>For programs: <a href="openapi.json">openapi.json</a></p>\n{parts}\n</body></html>\n'
    )


def _operations(document: Json) -> Iterator[str]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
            yield f"<p>{escape(operation.get('description') or operation.get('summary', ''))}</p>"
            if rows := "".join(_rows(operation)):
                yield f"<table><tr><th>field</th><th>values</th><th>meaning</th></tr>{rows}</table>"


def _rows(operation: Json) -> Iterator[str]:
    content = operation.get("requestBody", {}).get("content", {})
    for form in content.values():
        for name, schema in form["schema"]["properties"].items():
            cells = f"<code>{escape(name)}</code>", escape(_values(schema)), escape(schema["description"])
            yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _values(schema: Json) -> str:
    items = schema.get("items", schema)
    values = ", ".join(items.get("enum", ())) or (
        "file" if items.get("format") == "binary" else items["type"]
    )
    return f"{values} (default: {str(schema['default']).lower()})" if "default" in schema else values
