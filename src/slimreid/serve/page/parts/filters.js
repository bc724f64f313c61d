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

const rankBy = (changed) => {
  const { options } = query;
  return el("select", { onchange: (event) => { options.identities = event.target.value === "identities"; changed(); } },
    el("option", { value: "rows", selected: !options.identities }, t("matches.rows")),
    el("option", { value: "identities", selected: options.identities }, t("matches.identities")));
};

const cameraSelect = (onchange) =>
  el("select", { onchange }, el("option", { value: "" }, t("filter.any")),
    shared.cameras.filter((each) => each.name).map((each) => el("option", { value: each.name, translate: "no", selected: each.name === query.options.camera }, each.name)));

/** Controls for all options in a box that is open where there is room; `changed` is called after each change. */
export const filters = (changed) => {
  const { options } = query;
  const { rates } = shared.status.calibration;
  const summary = el("summary", {});
  const label = () => { summary.textContent = filterCount() ? t("filters.set", { n: filterCount() }) : t("filters"); };
  const set = (name) => (event) => {
    options[name] = event.target.value;
    label();
    changed();
  };
  const text = (name, type) => el("input", { type, value: options[name], maxlength: 200, autocomplete: "off", spellcheck: "false", onchange: set(name) });
  const narrowing = el("fieldset", {}, el("legend", {}, t("filters.legend")),
    el("div", { class: "pair" }, field(t("filter.camera"), cameraSelect(set("camera"))), field(t("filter.identity"), text("identity", "text"))),
    field(t("filter.since"), text("since", "datetime-local")),
    field(t("filter.until"), text("until", "datetime-local")),
    el("button", { type: "button", class: "link", onclick: () => {
      Object.assign(options, { camera: "", identity: "", since: "", until: "" });
      for (const control of narrowing.querySelectorAll("input, select")) control.value = "";
      label();
      changed();
    } }, t("filters.clear")));
  const count = el("select", { onchange: (event) => { options.k = Number(event.target.value); changed(); } },
    COUNTS.map((k) => el("option", { value: k, selected: k === options.k }, number(k))));
  label();
  return el("details", { class: "options", open: matchMedia("(min-width: 62rem)").matches || filterCount() > 0 }, summary,
    rates.length > 0 && field(t("rate.label"), rateSelect(rates, options.rate ?? rates[0], (rate) => { options.rate = rate; changed(); })),
    el("div", { class: "pair" }, field(t("matches.count"), count), field(t("matches.by"), rankBy(changed))),
    narrowing);
};
