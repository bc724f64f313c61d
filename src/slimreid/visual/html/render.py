"""Pages from the templates of this package; values are escaped, and nothing comes from outside the file."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from slimreid import __version__
from slimreid.visual.style import DARK, LIGHT


@cache
def environment() -> Environment:
    """The templates, with the colours of both looks; a value that is missing is an error."""
    environment = Environment(
        loader=PackageLoader("slimreid.visual"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"version": __version__, "light": LIGHT.colours(), "dark": DARK.colours()}
    return environment


def render(template: str, **values: Any) -> Markup:
    """A template of `slimreid/visual/templates` with its values filled in."""
    return Markup(environment().get_template(template).render(values))
