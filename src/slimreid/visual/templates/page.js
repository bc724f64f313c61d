"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");

  // Light and dark: the system's choice until the button is pressed.
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const show = () => {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-pressed", String(dark()));
  };
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    show();
  });
  system.addEventListener("change", show);
  show();

  // One tab per run; a choice holds for all groups of tabs that have the run.
  const groups = [...document.querySelectorAll(".tabs")];
  const tabsOf = (group) => [...group.querySelectorAll('[role="tab"]')];
  const select = (group, chosen) => {
    for (const tab of tabsOf(group)) {
      tab.setAttribute("aria-selected", String(tab === chosen));
      tab.tabIndex = tab === chosen ? 0 : -1;
      document.getElementById(tab.getAttribute("aria-controls")).hidden = tab !== chosen;
    }
  };
  const choose = (tab) => {
    const before = tab.getBoundingClientRect().top;
    for (const group of groups) {
      const same = tabsOf(group).find((other) => other.dataset.run === tab.dataset.run);
      if (same) select(group, same);
    }
    tab.focus({ preventScroll: true });
    scrollBy({ top: tab.getBoundingClientRect().top - before, behavior: "instant" });
  };
  for (const group of groups) {
    const tabs = tabsOf(group);
    for (const tab of tabs) tab.addEventListener("click", () => choose(tab));
    group.querySelector('[role="tablist"]').addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const end = { Home: 0, End: tabs.length - 1 }[event.key];
      if (step === undefined && end === undefined) return;
      const now = tabs.findIndex((tab) => tab.getAttribute("aria-selected") === "true");
      choose(tabs[end === undefined ? (now + step + tabs.length) % tabs.length : end]);
      event.preventDefault();
    });
    select(group, tabs[0]);
  }

  // Say where a table goes on beyond its edge.
  const wide = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const box = target.closest(".scroll");
      box.classList.toggle("wide", box.scrollWidth > box.clientWidth + 1);
    }
  });
  for (const box of document.querySelectorAll(".scroll")) {
    wide.observe(box);
    wide.observe(box.firstElementChild);
  }

  // Mark the section that is being read.
  const links = [...document.querySelectorAll(".top nav a")];
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of links) {
        const here = link.hash === "#" + entry.target.id;
        if (here) {
          link.setAttribute("aria-current", "true");
          const bar = link.closest("nav"); // on a phone it is wider than the screen
          bar.scrollLeft += link.getBoundingClientRect().left - bar.getBoundingClientRect().left - 16;
        } else link.removeAttribute("aria-current");
      }
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  document.querySelectorAll("main section[id]").forEach((section) => seen.observe(section));

  // On paper everything is open.
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));
})();
