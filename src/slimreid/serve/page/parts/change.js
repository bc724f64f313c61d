// Every change is shown before it is made: the service is asked what would happen, and only then told to do it.

import { api } from "../api.js";
import { el, newId } from "../dom.js";
import { parts, t } from "../i18n.js";
import { openDialog } from "./dialog.js";
import { identityName } from "./names.js";
import { problemBox, serviceText, working } from "./panels.js";
import { toast } from "./toast.js";

const target = (name) => (name === null ? t("change.out") : identityName(name));

/** What a change does, in words and figures. */
export const describeChange = (change) => [
  el("p", {}, t("change.rows", { n: change.rows })),
  change.moves.length > 0 &&
    el("ul", { class: "moves" }, change.moves.map((move) =>
      el("li", {}, parts("change.move", { n: move.rows.length, from: target(move.source), to: target(move.target) })))),
  change.effects.length > 0 &&
    el("div", { class: "scroll" }, el("table", {},
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, t("identity")), el("th", { scope: "col", class: "figure" }, t("change.before")), el("th", { scope: "col", class: "figure" }, t("change.after")))),
      el("tbody", {}, change.effects.map((effect) => el("tr", {},
        el("th", { scope: "row" }, identityName(effect.identity)),
        el("td", { class: "figure" }, String(effect.before)),
        el("td", { class: "figure" }, effect.after || effect.before === 0 ? String(effect.after) : t("change.gone"))))))),
  change.notes.map((text) => el("p", { class: "small faint" }, serviceText(text))),
];

/**
 * A form whose effect is shown while it is being filled in.
 *
 * title, explain: words. fields: elements that hold the values. ask(dryRun): asks the service. describe(answer): what
 * will happen, as nodes. confirm: words of the button. done(answer): afterwards.
 */
export const planDialog = ({ title, explain, fields, ready = () => true, ask, describe, confirm, done }) =>
  openDialog(title, (close) => {
    const id = newId("effect");
    const effect = el("section", { class: "effect", "aria-labelledby": id, "aria-live": "polite" });
    const button = el("button", { type: "submit", class: "main", disabled: true }, confirm);
    const show = (...children) => effect.replaceChildren(el("h3", { id }, t("change.title")), ...children);
    let latest = 0;
    const preview = async () => {
      const turn = (latest += 1);
      button.disabled = true;
      if (!ready()) {
        show(el("p", { class: "faint" }, t("change.incomplete")));
        return;
      }
      show(working("change.asking"));
      try {
        const answer = await ask(true);
        if (turn !== latest) return;
        show(...[describe(answer)].flat(2).filter(Boolean));
        button.disabled = false;
      } catch (problem) {
        if (turn === latest) show(problemBox(problem));
      }
    };
    let timer;
    // From the first letter on, what is shown belongs to another value: nothing can be confirmed until it is asked anew.
    const edited = () => {
      latest += 1;
      button.disabled = true;
      show(working("change.asking"));
      clearTimeout(timer);
      timer = setTimeout(preview, 250);
    };
    const form = el("form", { oninput: edited },
      explain && el("p", { class: "faint" }, explain), fields, effect,
      el("footer", { class: "row end" }, el("button", { type: "button", onclick: close }, t("cancel")), button));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (button.disabled) return;
      button.disabled = true;
      try {
        const answer = await ask(false);
        close();
        await done(answer);
      } catch (problem) {
        show(problemBox(problem));
      }
    });
    preview();
    return form;
  });

/** A text field with suggestions. */
export const nameField = (label, value, names = [], help = "") => {
  const list = newId("names");
  const input = el("input", { type: "text", value, maxlength: 200, autocomplete: "off", spellcheck: "false", list: names.length ? list : null });
  const field = el("label", { class: "field" }, el("span", {}, label), input, help && el("small", {}, help));
  return { input, nodes: [field, names.length > 0 && el("datalist", { id: list }, names.map((name) => el("option", { value: name })))] };
};

/** A dialog for an operation of /v1 that answers a `Change`. */
export const changeDialog = ({ operation, body, changed, ...rest }) =>
  planDialog({
    ask: (dryRun) => api.change(operation, { ...body(), dry_run: dryRun }),
    describe: describeChange,
    done: async (change) => {
      const isForGood = Boolean(body().forget);
      toast(t("change.done", { n: change.rows }), isForGood ? null : change.entry, changed);
      await changed();
    },
    ...rest,
  });
