"""Path templates: `{split}/{modality}/{identity}_cam{camera}_{}` as a pattern for file names.

A field `{name}` matches any text within one path part, as short as possible; `{name:regex}` matches
the regular expression; `{}` matches anything within a part and is not kept; text outside braces stands
for itself. A template may end in a suffix such as `.jpg`, and is then for such files only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from slimreid.errors import ConfigError
from slimreid.files import IMAGE_SUFFIXES

FIELDS = ("split", "modality", "identity", "camera", "scene")


@dataclass(frozen=True)
class Template:
    """A compiled path template."""

    text: str
    pattern: re.Pattern[str]
    suffix: str = ""
    """Suffix that files must have, in lower case; '' = that of any image."""

    @property
    def fields(self) -> frozenset[str]:
        """Names of the fields that are kept."""
        return frozenset(self.pattern.groupindex)

    def match(self, relative: str, suffix: str = "") -> re.Match[str] | None:
        """Match a path (forward slashes) without its suffix as a whole."""
        if self.suffix and self.suffix != suffix.lower():
            return None
        return self.pattern.fullmatch(relative)


def compile_template(text: str) -> Template:
    """Compile a template; raises `ConfigError` for unknown fields, repeated fields or bad braces."""
    pattern = ""
    seen: set[str] = set()
    at = 0
    suffix = next((s for s in IMAGE_SUFFIXES if text.lower().endswith(s)), "")
    end_of_name = len(text) - len(suffix)
    while at < end_of_name:
        if text[at] == "}":
            raise ConfigError(f"template '{text}': '}}' without '{{' at position {at}")
        if text[at] != "{":
            pattern += re.escape(text[at])
            at += 1
            continue
        end = _closing_brace(text, at)
        name, _, regex = text[at + 1 : end].partition(":")
        at = end + 1
        if not name:
            pattern += f"(?:{regex or '[^/]*?'})"
            continue
        if name not in FIELDS and not name.startswith("x_"):
            raise ConfigError(
                f"template '{text}': unknown field '{name}'; use {', '.join(FIELDS)}, x_... or {{}}"
            )
        if name in seen:
            raise ConfigError(f"template '{text}': field '{name}' appears twice; write {{}} for the second")
        seen.add(name)
        pattern += f"(?P<{name}>{regex or '[^/]+?'})"
    if "identity" not in seen:
        raise ConfigError(f"template '{text}': needs at least the field {{identity}}")
    try:
        return Template(text, re.compile(pattern), suffix)
    except re.error as error:
        raise ConfigError(f"template '{text}': {error}") from None


def _closing_brace(text: str, start: int) -> int:
    depth = 0
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at
    raise ConfigError(f"template '{text}': '{{' at position {start} is never closed")
