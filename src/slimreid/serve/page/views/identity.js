// One identity: all its rows, and what can be done with it.

import { api } from "../api.js";
import { el } from "../dom.js";
import { t } from "../i18n.js";
import { choice, rowCard } from "../parts/cards.js";
import { mergeIdentities, removeRows, renameIdentity } from "../parts/edits.js";
import { loadInto } from "../parts/panels.js";
import { may, refresh } from "../state.js";

const PAGE = 48;

const go = (name) => { location.hash = name ? `#identity/${encodeURIComponent(name)}` : "#identities"; };

/** Draws the view of the identity `name` into `main`. */
export const identityView = (main, again, name) => {
  const list = el("div", {});
  const reload = async () => {
    await refresh();
    await again();
  };
  const moved = async (target) => {
    await refresh();
    if (target === name) await again();
    else go(target);
  };
  const chosen = choice(reload, { split: true });
  const load = async () => {
    const page = await api.rows({ identity: name }, null, PAGE);
    if (!page.total) return el("p", { class: "faint" }, t("identity.gone"));
    const cards = el("ul", { class: "cards" }, page.rows.map((row) => rowCard(row, { chosen, level: 2 })));
    const more = el("button", { type: "button", hidden: page.next === null, onclick: async () => {
      const next = await api.rows({ identity: name }, page.next, PAGE);
      cards.append(...next.rows.map((row) => rowCard(row, { chosen, level: 2 })));
      page.next = next.next;
      more.hidden = next.next === null;
    } }, t("more"));
    return [el("p", { class: "faint" }, t("rows", { n: page.total })), cards, el("div", { class: "row" }, more)];
  };
  main.replaceChildren(
    el("p", { class: "crumbs" }, el("a", { href: "#identities" }, t("nav.identities"))),
    el("div", { class: "row spread" },
      el("h1", {}, el("span", { translate: "no" }, name)),
      may("editor") && el("div", { class: "row" },
        el("button", { type: "button", onclick: () => renameIdentity(name, moved) }, t("rename.open")),
        el("button", { type: "button", onclick: () => mergeIdentities([name], moved) }, t("merge.open")),
        el("button", { type: "button", class: "danger", onclick: () => removeRows({ identities: [name] }, () => moved("")) }, t("remove.open")))),
    list, chosen.bar);
  return loadInto(list, load);
};
