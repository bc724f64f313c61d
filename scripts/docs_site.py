"""Hooks of the documentation site: pages may link to the committed tables of `research/results`."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

RESULTS = "research/results"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the result tables and their plots, which live outside the documentation's folder."""
    root = Path(config.config_file_path or "mkdocs.yml").resolve().parent
    for path in sorted((root / RESULTS).iterdir()):
        if path.suffix in (".md", ".png"):
            uri = path.relative_to(root).as_posix()
            level = InclusionLevel.NOT_IN_NAV
            files.append(File.generated(config, uri, abs_src_path=str(path), inclusion=level))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links that leave the folder to where the hook above has put their files."""
    return markdown if page.file.generated_by else markdown.replace(f"](../{RESULTS}/", f"]({RESULTS}/")
