// Rows without identity, grouped by likeness: give each group a name.

import { api } from "../api.js";
import { el } from "../dom.js";
import { number, t } from "../i18n.js";
import { rowCard } from "../parts/cards.js";
import { rateSelect } from "../parts/decision.js";
import { assignRows } from "../parts/edits.js";
import { loadInto, note, panel } from "../parts/panels.js";
import { may, refresh, shared } from "../state.js";

const chosen = { rate: null, threshold: 0.5 };

const group = (cluster, again) => {
  const ids = cluster.rows.map((row) => row.id);
  const left = new Set(ids);
  const pick = { has: (id) => left.has(id), set: (id, there) => left[there ? "add" : "delete"](id) };
  return el("section", { class: "cluster" },
    el("div", { class: "row spread" },
      el("h2", {}, t("cluster.title", { n: ids.length }), " ", el("small", { class: "faint", translate: "no" }, cluster.name)),
      may("editor") && el("button", { type: "button", class: "main", onclick: () => left.size && assignRows([...left], again, cluster.name) },
        t("cluster.name"), el("span", { class: "spoken" }, " ", el("span", { translate: "no" }, cluster.name)))),
    el("ul", { class: "cards" }, cluster.rows.map((row) => rowCard(row, { chosen: pick }))));
};

/** Draws the view into `main`. */
export const clustersView = (main, again) => {
  const list = el("div", {});
  const { rates, state } = shared.status.calibration;
  const calibrated = state === "ok" && rates.length > 0;
  const changed = async () => {
    await refresh();
    await again();
  };
  const load = async () => {
    const found = await api.clusters(calibrated ? { rate: chosen.rate ?? rates[0] } : { threshold: chosen.threshold });
    if (!found.clusters.length) return el("p", { class: "faint" }, t("clusters.alone", { n: found.alone }));
    return [
      el("p", { class: "faint" }, t("clusters.count", { n: found.clusters.length }), t("space"), t("clusters.alone", { n: found.alone }), t("space"), t("clusters.threshold", { score: number(found.threshold, 3) })),
      ...found.clusters.map((cluster) => group(cluster, changed)),
    ];
  };
  const reload = () => loadInto(list, load, "clusters.working");
  const control = calibrated
    ? el("label", { class: "field narrow" }, el("span", {}, t("rate.label")), rateSelect(rates, chosen.rate ?? rates[0], (rate) => { chosen.rate = rate; reload(); }))
    : el("label", { class: "field narrow" }, el("span", {}, t("clusters.score")),
        el("input", { type: "number", step: 0.05, min: -1, max: 2, value: chosen.threshold, onchange: (event) => { chosen.threshold = Number(event.target.value); reload(); } }));
  main.replaceChildren(el("h1", {}, t("clusters.title")), el("p", { class: "faint" }, t("clusters.explain")));
  if (!shared.status.unknown) {
    main.append(panel("known", t("clusters.nothing"), t("clusters.nothing.text")));
    return undefined;
  }
  main.append(calibrated ? "" : note(el("p", {}, t(`calibration.${state}`), t("space"), t("clusters.uncalibrated"))), control, list);
  return reload();
};
