"""A page as a browser sees it: its elements and texts, and its colors with their contrast."""

import re
from html.parser import HTMLParser

VOID = {"meta", "br", "img", "input", "link", "hr"}


def spaced(text: str) -> str:
    """A text with ordinary spaces where lines must not be broken."""
    return text.replace("\u00a0", " ")


class ParsedPage(HTMLParser):
    """A page as a browser would see it: elements with attributes, texts, and whether every element is closed."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute twice in {tag}: {attrs}"
        self.elements.append((tag, {key: value and spaced(value) for key, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", spaced(data)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of all elements of this kind."""
        return [attributes for name, attributes in self.elements if name == tag]

    def said(self, *inside: str) -> list[str]:
        """The texts directly inside elements of these kinds, or all but scripts and styles."""
        return [
            text.strip() for tag, text in self.texts if (tag in inside if inside else tag not in {"script", "style"})
        ]


def page_colors(style: str, scheme: str) -> dict[str, tuple[float, float, float]]:
    """The named page_colors of a scheme, in shares of red, green and blue."""
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    block = blocks[{"light": 0, "dark": 1, "print": 2}[scheme]]
    found = {}
    for name, value in re.findall(r"--([a-z-]+): ([^;]+);", block):
        parts = [int(value[i : i + 2], 16) for i in (1, 3, 5)] if value[0] == "#" else [int(p) for p in value.split()]
        found[name] = (parts[0] / 255, parts[1] / 255, parts[2] / 255)
    return found


def luminance(color: tuple[float, float, float]) -> float:
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in color)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: tuple[float, float, float], other: tuple[float, float, float]) -> float:
    """The contrast of two page_colors as WCAG 2.2 reckons it: from 1 to 21."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)
