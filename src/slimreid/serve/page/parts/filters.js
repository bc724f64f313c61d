// Which rows are searched: camera, time, identity; and how the answer is made.

import { el } from "../dom.js";
import { number, t } from "../i18n.js";
import { query, shared } from "../state.js";
import { rateSelect } from "./decision.js";

const COUNTS = [6, 12, 24, 48, 96];

const field = (label, control) => el("label", { class: "field" }, el("span", {}, label), control);

/** A moment that a person chose in their own time zone, as the service takes it. */
const asTime = (local) => (local ? new Date(local).toISOString() : null);

/** The options as fields of a request. */
export const searchFields = () => {
  const { k, identities, rate, camera, identity, since, until } = query.options;
  const rates = shared.status.calibration.rates;
  return {
    k, identities, camera, identity, pooled: true,
    rate: rates.includes(rate) ? rate : null, since: asTime(since), until: asTime(until),
  };
};

/** How many filters are set. */
const filterCount = () => ["camera", "identity", "since", "until"].filter((name) => query.options[name]).length;

/** Controls for all options; `changed` is called after each change. */
export const filters = (changed) => {
  const { options } = query;
  const rates = shared.status.calibration.rates;
  const summary = el("summary", {});
  const label = () => { summary.textContent = filterCount() ? t("filters.set", { n: filterCount() }) : t("filters"); };
  const set = (name) => (event) => {
    options[name] = event.target.value;
    label();
    changed();
  };
  label();
  const camera = el("select", { onchange: set("camera") }, el("option", { value: "" }, t("filter.any")),
    shared.cameras.filter((each) => each.name).map((each) => el("option", { value: each.name, translate: "no", selected: each.name === options.camera }, each.name)));
  const clear = el("button", { type: "button", class: "link", onclick: () => {
    Object.assign(options, { camera: "", identity: "", since: "", until: "" });
    for (const control of box.querySelectorAll("input, select")) control.value = "";
    label();
    changed();
  } }, t("filters.clear"));
  const box = el("details", { open: filterCount() > 0 }, summary,
    field(t("filter.camera"), camera),
    field(t("filter.identity"), el("input", { type: "text", value: options.identity, maxlength: 200, autocomplete: "off", spellcheck: "false", onchange: set("identity") })),
    field(t("filter.since"), el("input", { type: "datetime-local", value: options.since, onchange: set("since") })),
    field(t("filter.until"), el("input", { type: "datetime-local", value: options.until, onchange: set("until") })),
    clear);
  const count = el("select", { onchange: (event) => { options.k = Number(event.target.value); changed(); } },
    COUNTS.map((k) => el("option", { value: k, selected: k === options.k }, number(k))));
  return [
    rates.length > 0 && el("label", { class: "field" }, el("span", {}, t("rate.label")),
      rateSelect(rates, options.rate ?? rates[0], (rate) => { options.rate = rate; changed(); })),
    el("div", { class: "pair" }, field(t("matches.count"), count),
      field(t("matches.by"), el("select", { onchange: (event) => { options.identities = event.target.value === "identities"; changed(); } },
        el("option", { value: "rows", selected: !options.identities }, t("matches.rows")),
        el("option", { value: "identities", selected: options.identities }, t("matches.identities"))))),
    box,
  ];
};
