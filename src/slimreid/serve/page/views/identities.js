// Everybody who is enrolled; several can be merged.

import { api } from "../api.js";
import { el, icon } from "../dom.js";
import { t } from "../i18n.js";
import { mergeIdentities, removeRows } from "../parts/edits.js";
import { loadInto, panel, say } from "../parts/panels.js";
import { rowStrip } from "../parts/pictures.js";
import { may, refresh, shared } from "../state.js";

const PAGE = 24;

/** Loads the first row of an identity when its card comes into sight. */
const covers = () =>
  new IntersectionObserver((entries, observer) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      observer.unobserve(target);
      api.rows({ identity: target.dataset.identity }, null, 1).then(
        ({ rows }) => rows.length && target.querySelector(".cover").replaceChildren(rowStrip(rows[0])),
        () => {}, // the card is whole without its picture; a lost connection is told elsewhere
      );
    }
  }, { rootMargin: "200px" });

const card = (identity, chosen, observer) => {
  const box = may("editor") &&
    el("label", { class: "choose" }, el("input", { type: "checkbox", onchange: (event) => chosen.set(identity.name, event.target.checked) }),
      el("span", { class: "spoken" }, t("choose.identity"), " ", el("span", { translate: "no" }, identity.name)));
  const node = el("li", { class: "card", data: { identity: identity.name } },
    el("div", { class: "head" }, el("h2", { class: "name" }, el("a", { href: `#identity/${encodeURIComponent(identity.name)}`, translate: "no" }, identity.name)), box),
    el("div", { class: "cover" }),
    el("p", { class: "faint small" }, t("rows", { n: identity.rows })));
  observer.observe(node);
  return node;
};

const choiceBar = (again) => {
  const names = new Set();
  const bar = el("div", { class: "choicebar", role: "region", "aria-label": t("choice.label"), hidden: true });
  const clear = () => {
    names.clear();
    for (const box of document.querySelectorAll(".choose input")) box.checked = false;
    show();
  };
  const show = () => {
    bar.hidden = names.size === 0;
    bar.replaceChildren(
      el("b", { role: "status" }, t("choice.identities", { n: names.size })),
      el("button", { type: "button", onclick: () => mergeIdentities([...names], again) }, t("merge.open")),
      el("button", { type: "button", class: "danger", onclick: () => removeRows({ identities: [...names] }, again) }, t("remove.open")),
      el("button", { type: "button", class: "quiet", "aria-label": t("choice.clear"), onclick: clear }, icon("cross")));
  };
  return { bar, set: (name, chosen) => { names[chosen ? "add" : "delete"](name); show(); } };
};

/** Draws the view into `main`. */
export const identitiesView = (main, again) => {
  const list = el("div", {});
  const chosen = choiceBar(async () => { await refresh(); await again(); });
  const observer = covers();
  let text = "";
  const load = async () => {
    const page = await api.identities(text, null, PAGE);
    if (!page.total) return text ? el("p", { class: "faint" }, t("identities.none")) : panel("identities", t("empty.title"), t("empty.text"), may("editor") && el("a", { class: "button", href: "#enrol" }, t("enrol.many")));
    const cards = el("ul", { class: "cards" }, page.identities.map((each) => card(each, chosen, observer)));
    const more = el("button", { type: "button", hidden: page.next === null, onclick: async () => {
      const next = await api.identities(text, page.next, PAGE);
      cards.append(...next.identities.map((each) => card(each, chosen, observer)));
      page.next = next.next;
      more.hidden = next.next === null;
    } }, t("more"));
    const count = t("identities.count", { n: page.total });
    say(count);
    return [el("p", { class: "faint" }, count), cards, el("div", { class: "row" }, more)];
  };
  let timer;
  const search = el("input", { type: "search", autocomplete: "off", spellcheck: "false", oninput: () => {
    clearTimeout(timer);
    timer = setTimeout(() => { text = search.value.trim(); loadInto(list, load); }, 250);
  } });
  main.replaceChildren(
    el("h1", {}, t("identities.title")),
    el("div", { class: "row" },
      el("label", { class: "field grow" }, el("span", {}, t("identities.search")), search),
      may("editor") && el("a", { class: "button", href: "#enrol" }, t("enrol.many")),
      shared.status.unknown > 0 && el("a", { href: "#clusters" }, t("identities.unknown", { n: shared.status.unknown }))),
    list, chosen.bar);
  return loadInto(list, load);
};
