// The states that any part of the page can be in besides having something to show.

import { data, el, icon } from "../dom.js";
import { has, t } from "../i18n.js";

/** Says something to a screen reader without moving the focus. */
export const say = (text) => {
  document.getElementById("spoken").textContent = text;
};

/** What the service said; it speaks English. */
export const serviceText = (text, name = "span") => data(text, name, { lang: "en" });

/** Something is being waited for. */
export const working = (key = "working") =>
  el("div", { class: "panel working", role: "status" }, el("span", { class: "spinner", "aria-hidden": "true" }), el("p", {}, t(key)));

/** A state that needs words: an icon, a title, an explanation, and what can be done. */
export const panel = (picture, title, text, ...actions) =>
  el("div", { class: "panel fade" }, icon(picture), el("h2", {}, title), text && el("p", { class: "faint" }, text), actions);

/** A remark beside the rest. */
export const note = (...children) => el("div", { class: "note" }, icon("warning"), el("div", {}, children));

const problemTitle = (problem) => {
  for (const key of [`problem.${problem.name}`, `problem.${problem.status}`]) if (has(key)) return t(key);
  return problem.title ? serviceText(problem.title) : t("problem.other");
};

/** A problem in words: its title, what the service said of this case, and its number in the service's log. */
export const problemBox = (problem, retry) => {
  const number = problem.instance && el("p", { class: "small faint" }, t("problem.number"), " ", data(problem.instance, "code"));
  return el(
    "div",
    { class: "problem fade", role: "alert" },
    icon("warning"),
    el(
      "div",
      {},
      el("p", { class: "title" }, problemTitle(problem)),
      problem.detail && el("p", {}, serviceText(problem.detail)),
      problem.errors.length > 0 &&
        el("ul", {}, problem.errors.map((each) => serviceText(`${each.field}: ${each.message}`, "li"))),
      number,
      retry && el("button", { type: "button", onclick: retry }, t("retry")),
    ),
  );
};

/** Fills `place` with what `load` gives: working first, then the result or the problem with a way to try again. */
export const loadInto = async (place, load, key) => {
  place.setAttribute("aria-busy", "true");
  place.replaceChildren(working(key));
  try {
    place.replaceChildren(...[await load()].flat());
  } catch (error) {
    if (!(error.status >= 0)) throw error;
    place.replaceChildren(problemBox(error, () => loadInto(place, load, key)));
  } finally {
    place.removeAttribute("aria-busy");
  }
};
