// How the service is: what it holds, which model answers, how busy it is.

import { api } from "../api.js";
import { data, el } from "../dom.js";
import { number, t } from "../i18n.js";
import { jobProgress } from "../parts/jobs.js";
import { loadInto } from "../parts/panels.js";
import { modalityText } from "../parts/names.js";
import { refresh, shared } from "../state.js";

const SECONDS = 5;

const tile = (value, key) => el("li", {}, el("b", {}, value), el("span", {}, t(key)));

const fact = (key, ...value) => el("tr", {}, el("th", { scope: "row" }, t(key)), el("td", {}, value));

const size = (bytes) => t("megabytes", { n: number(bytes / 2 ** 20) });

const duration = (seconds) => {
  const hours = Math.floor(seconds / 3600);
  return hours ? t("hours", { n: hours, minutes: number(Math.floor((seconds % 3600) / 60)) }) : t("minutes", { n: Math.floor(seconds / 60) });
};

const load = ({ load: now }) =>
  el("div", { class: "load" },
    el("label", {}, el("span", {}, t("service.queue", { n: now.queued, all: number(now.capacity) })), el("meter", { min: 0, max: now.capacity, high: 0.8 * now.capacity, value: now.queued })));

const state = (status) => [
  el("ul", { class: "tiles" },
    tile(number(status.rows), "service.rows"), tile(number(status.identities), "service.identities"), tile(number(status.unknown), "service.unknown"),
    tile(number(status.load.embedded), "service.embedded"), tile(number(status.load.requests), "service.requests"), tile(number(status.load.refused), "service.refused")),
  load(status),
  el("table", { class: "facts" }, el("tbody", {},
    fact("service.gallery", data(status.gallery)),
    fact("service.model", data(status.model.name)),
    fact("service.modalities", status.model.modalities.map(modalityText).join(t("comma"))),
    fact("service.precision", data(status.model.precision), " · ", data(status.model.engine)),
    fact("service.feature", data(status.model.feature), " · ", t("service.dimension", { n: status.model.dimension })),
    fact("service.fingerprint", data(status.model.fingerprint.slice(0, 16), "code")),
    fact("service.calibration", t(`calibration.${status.calibration.state}`)),
    fact("service.limits", t("service.limits.text", { images: number(status.limits.images), size: size(status.limits.body_bytes), seconds: number(status.limits.seconds) })),
    fact("service.uptime", duration(status.uptime)),
    fact("service.version", data(status.version)))),
];

const jobList = async () => {
  const { jobs } = await api.jobs();
  return jobs.length ? jobs.slice(0, 10).map((job) => jobProgress(job, undefined, { controls: true })) : el("p", { class: "faint" }, t("jobs.none"));
};

/** Draws the view into `main` and keeps it fresh while it is shown. */
export const serviceView = (main) => {
  const place = el("div", {});
  const jobs = el("div", {});
  main.replaceChildren(el("h1", {}, t("service.title")), place, el("h2", {}, t("jobs.title")), jobs);
  const timer = setInterval(async () => {
    if (!place.isConnected) return clearInterval(timer);
    await refresh().catch(() => {});
    return place.isConnected && place.replaceChildren(...state(shared.status));
  }, 1000 * SECONDS);
  return Promise.all([loadInto(place, async () => { await refresh(); return state(shared.status); }), loadInto(jobs, jobList)]);
};
