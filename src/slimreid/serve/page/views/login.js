// A token opens the page; the service keeps it in a cookie that no script can read.

import { api } from "../api.js";
import { el, focusOn, icon } from "../dom.js";
import { t } from "../i18n.js";
import { problemBox } from "../parts/panels.js";

/** Draws the login into `main`; `entered` gets the session. */
export const loginView = (main, entered) => {
  const input = el("input", { type: "password", autocomplete: "current-password", required: true, maxlength: 200, spellcheck: "false" });
  const trouble = el("div", {});
  const button = el("button", { type: "submit", class: "main" }, t("login.enter"));
  const form = el("form", { class: "login" },
    icon("lock"), el("h1", {}, t("login.title")), el("p", { class: "faint" }, t("login.text")),
    el("label", { class: "field" }, el("span", {}, t("login.token")), input), trouble, button);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      await entered(await api.login(input.value.trim()));
    } catch (problem) {
      trouble.replaceChildren(problemBox(problem));
      button.disabled = false;
      focusOn(input);
    }
  });
  main.replaceChildren(form);
  focusOn(input);
};
