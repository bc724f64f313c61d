// Starts the page: who is here, which view is asked for, and what to do when the connection is lost.

import { api, events, Problem, waitForService } from "./api.js";
import { el, focusOn, icon } from "./dom.js";
import { onLanguage, relabel, startLanguage, t } from "./i18n.js";
import { panel, problemBox, say, serviceText, working } from "./parts/panels.js";
import { toast } from "./parts/toast.js";
import { may, refresh, shared } from "./state.js";
import { startTheme } from "./theme.js";
import { calibrationView } from "./views/calibration.js";
import { clustersView } from "./views/clusters.js";
import { enrolView } from "./views/enrol.js";
import { identitiesView } from "./views/identities.js";
import { identityView } from "./views/identity.js";
import { logView } from "./views/log.js";
import { loginView } from "./views/login.js";
import { searchView } from "./views/search.js";
import { serviceView } from "./views/service.js";

const VIEWS = {
  search: searchView, identities: identitiesView, identity: identityView, enrol: enrolView, clusters: clustersView,
  log: logView, calibration: calibrationView, service: serviceView,
};
const main = document.getElementById("main");
const nav = document.getElementById("nav");
const banner = document.getElementById("banner");

/** The view and its argument, as the address names them. */
const address = () => {
  const [name, ...rest] = location.hash.slice(1).split("/");
  return { name: name in VIEWS ? name : "search", rest: decodeURIComponent(rest.join("/")) };
};

const who = () => {
  const place = document.getElementById("who");
  const { session } = shared;
  place.hidden = !session?.name;
  if (place.hidden) return;
  place.replaceChildren(...[
    session.login && el("span", { class: "name", translate: "no" }, session.name),
    el("span", { class: "chip" }, t(`role.${session.role}`)),
    session.login && el("button", { type: "button", class: "link", onclick: async () => { await api.logout(); location.reload(); } }, t("logout")),
  ].filter(Boolean));
};

const draw = async () => {
  if (!shared.status) return;
  const { name, rest } = address();
  const here = ["identity", "enrol"].includes(name) ? "identities" : name;
  for (const link of nav.querySelectorAll("a")) {
    if (link.hash === `#${here}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${name === "identity" ? rest : t(`nav.${name}`)} · SlimReID`;
  await VIEWS[name](main, draw, rest);
};

const visit = async () => {
  document.querySelector("dialog[open]")?.close();
  scrollTo({ top: 0, behavior: "instant" });
  const drawing = draw();
  focusOn(main.querySelector("h1"));
  await drawing;
};

const enter = async (session, start = draw) => {
  shared.session = session;
  who();
  main.replaceChildren(working());
  try {
    await refresh();
  } catch (problem) {
    if (problem.status === 401) return;
    main.replaceChildren(problemBox(problem, () => enter(session, start)));
    return;
  }
  document.getElementById("place").textContent = shared.status.gallery;
  nav.hidden = false;
  showRole();
  await start();
};

const showRole = () => {
  if (!shared.status || may("editor")) return;
  banner.replaceChildren(el("div", { class: "strip-note" }, icon("lock"), el("p", {}, t("viewer.note"))));
};

const login = () => {
  nav.hidden = true;
  shared.status = null;
  document.querySelector("dialog[open]")?.close();
  banner.replaceChildren();
  document.title = `${t("login.title")} · SlimReID`;
  loginView(main, (session) => enter(session, visit));
};

const begin = async () => {
  main.replaceChildren(working());
  try {
    const session = await api.session();
    if (session.role === null) login();
    else await enter(session);
  } catch (problem) {
    if (problem.name === "ConnectionLost") main.replaceChildren(panel("offline", t("problem.ConnectionLost"), t("lost.text")));
    else main.replaceChildren(problemBox(problem, begin));
  }
};

events.addEventListener("login", login);
events.addEventListener("lost", () => {
  banner.replaceChildren(el("div", { class: "strip-note lost" }, icon("offline"), el("p", {}, t("problem.ConnectionLost"), t("space"), t("lost.text"))));
  waitForService();
});
events.addEventListener("back", () => {
  banner.replaceChildren();
  say(t("lost.back"));
  showRole();
  if (shared.status) draw();
  else begin();
});
addEventListener("hashchange", visit);
// What a button started and nobody waits for: the banner and the login speak for themselves, the rest is said here.
addEventListener("unhandledrejection", (event) => {
  if (!(event.reason instanceof Problem)) return;
  event.preventDefault();
  if (event.reason.status && event.reason.status !== 401) toast(serviceText(event.reason.message));
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names the view
  focusOn(main);
});
onLanguage(() => {
  who();
  banner.replaceChildren();
  showRole();
  if (shared.status) draw();
  else begin();
});

startTheme(document.getElementById("theme"));
startLanguage(document.getElementById("language"));
relabel();
begin();
