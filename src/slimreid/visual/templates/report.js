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

  // One tab per run; the choice holds for all groups of tabs on the page.
  const groups = [...document.querySelectorAll(".tabs")];
  const choose = (number, focus) => {
    for (const group of groups) {
      const tabs = [...group.querySelectorAll('[role="tab"]')];
      tabs.forEach((tab, k) => {
        const on = k === number;
        tab.setAttribute("aria-selected", String(on));
        tab.tabIndex = on ? 0 : -1;
        document.getElementById(tab.getAttribute("aria-controls")).hidden = !on;
        if (on && group === focus) tab.focus();
      });
    }
  };
  for (const group of groups) {
    const tabs = [...group.querySelectorAll('[role="tab"]')];
    tabs.forEach((tab, k) => tab.addEventListener("click", () => {
      const before = group.getBoundingClientRect().top;
      choose(k, group);
      scrollBy({ top: group.getBoundingClientRect().top - before, behavior: "instant" });
    }));
    group.querySelector('[role="tablist"]').addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const end = { Home: 0, End: tabs.length - 1 }[event.key];
      if (step === undefined && end === undefined) return;
      const now = tabs.findIndex((tab) => tab.getAttribute("aria-selected") === "true");
      choose(end === undefined ? (now + step + tabs.length) % tabs.length : end, group);
      event.preventDefault();
    });
  }
  if (groups.length) choose(0, null);

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
