"""A page of the service that was opened in a browser, and what tests do with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from support.runs import NAMES

LATIN = """() => {
  const found = [];
  const latin = (text) => /[A-Za-z]{2,}/.test(text ?? "");
  const shown = (node) => !node.closest('[translate="no"], script, style, noscript');
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode())
    if (latin(walker.currentNode.data) && shown(walker.currentNode.parentElement)) found.push(walker.currentNode.data);
  for (const node of document.querySelectorAll("[aria-label], [alt], [title], [placeholder]"))
    for (const name of ["aria-label", "alt", "title", "placeholder"])
      if (shown(node) && latin(node.getAttribute(name))) found.push(node.getAttribute(name));
  return found;
}"""
"""Text with a Latin word that is not marked as data."""


@dataclass
class Visit:
    """A page that was opened, and what goes with it."""

    page: Any
    folder: Path
    complaints: list[str]
    url: str

    def go(self, view: str) -> None:
        self.page.goto(f"{self.url}#{view}")
        self.page.wait_for_selector("main:not(:has(.working)) h1")

    def file(self, name: str, modality: str) -> str:
        return str(self.folder / "set" / modality / f"{name}.png")

    def put(self, name: str, *, shot: int = 0, modalities: tuple[str, ...] = NAMES) -> None:
        """Choose images for the slots of a shot and wait for the answer."""
        for modality in modalities:
            slot = f'[data-shot="{shot}"][data-modality="{modality}"] input'
            with self.page.expect_response("**/v1/identify"):
                self.page.set_input_files(slot, self.file(name, modality))
        self.page.wait_for_selector(".answer:not([aria-busy])")

    def text(self, selector: str) -> str:
        return " ".join(self.page.inner_text(selector).split())

    def texts(self, selector: str) -> list[str]:
        return [" ".join(text.split()) for text in self.page.locator(selector).all_inner_texts()]

    def click(self, name: str, role: str = "button") -> None:
        self.page.get_by_role(role, name=name, exact=True).first.click()

    def judge(self) -> None:
        """Let axe look at the page as it is, and at whether it is wider than the screen."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page, options={"resultTypes": ["violations"]})
        assert found.violations_count == 0, found.generate_report()
        assert self.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def rows_of(url: str, identity: str) -> list[int]:
    """Rows of an identity, as the service says."""
    answer = httpx.get(f"{url}v1/rows", params={"identity": identity}).json()
    return [row["id"] for row in answer["rows"]]
