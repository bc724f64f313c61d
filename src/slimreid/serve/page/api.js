// The service under /v1, by its words. Errors become `Problem`s; a lost connection and a missing login are told
// to whoever listens, so that views need not care.

const BASE = "v1/";
const MOST_WAIT = 5;

/** What went wrong, as the service's problem document says it. */
export class Problem extends Error {
  constructor({ name = "", title = "", detail = "", status = 0, errors = null, instance = "" }) {
    super(detail || title || name);
    Object.assign(this, { name, title, detail, status, errors: errors ?? [], instance });
  }
}

/** Listeners: `lost` and `back` for the connection, `login` where a token is needed. */
export const events = new EventTarget();
let connected = true;

const tell = (name) => events.dispatchEvent(new Event(name));
const connection = (there) => {
  if (there === connected) return;
  connected = there;
  tell(there ? "back" : "lost");
};
const pause = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

const send = async (path, options) => {
  try {
    const response = await fetch(BASE + path, { credentials: "same-origin", cache: "no-store", ...options });
    connection(true);
    return response;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    connection(false);
    throw new Problem({ name: "ConnectionLost" });
  }
};

const problemOf = async (response) => {
  try {
    return new Problem({ status: response.status, ...(await response.json()) });
  } catch {
    return new Problem({ name: "UnexpectedAnswer", detail: response.statusText, status: response.status });
  }
};

const request = async (path, options = {}) => {
  let response = await send(path, options);
  if (response.status === 503 || response.status === 429) {
    const wait = Number(response.headers.get("Retry-After") ?? 1);
    if (wait <= MOST_WAIT) {
      await pause(wait);
      response = await send(path, options);
    }
  }
  if (response.ok) return response;
  const problem = await problemOf(response);
  if (problem.status === 401 && path !== "session") tell("login");
  throw problem;
};

const read = async (path, values = {}) => {
  const pairs = Object.entries(values).flatMap(([name, value]) => [value].flat().map((each) => [name, each]));
  const query = new URLSearchParams(pairs.filter(([, value]) => value !== null && value !== undefined && value !== ""));
  return (await request(query.size ? `${path}?${query}` : path)).json();
};
const post = async (path, body, signal) => {
  const form = body instanceof FormData;
  const headers = form ? {} : { "Content-Type": "application/json" };
  return (await request(path, { method: "POST", headers, body: form ? body : JSON.stringify(body), signal })).json();
};

/** Shots of one object ({modality: File} each) and further fields as a form. */
export const asForm = (shots, fields = {}) => {
  const form = new FormData();
  shots.forEach((shot, number) => {
    for (const [name, file] of Object.entries(shot)) form.append(number ? `${name}.${number}` : name, file, file.name || name);
  });
  for (const [name, value] of Object.entries(fields))
    for (const each of [value].flat()) if (each !== "" && each !== null && each !== undefined) form.append(name, String(each));
  return form;
};

export const api = {
  health: () => read("health"),
  session: () => read("session"),
  login: (token) => post("session", { token }),
  logout: async () => (await request("session", { method: "DELETE" })).json(),
  status: () => read("status"),
  cameras: () => read("cameras"),
  identify: (shots, fields, signal) => post("identify", asForm(shots, fields), signal),
  patches: (shots) => post("patches", asForm(shots)),
  identities: (query, after, limit) => read("identities", { query, after, limit }),
  rows: (filter, after, limit) => read("rows", { ...filter, after, limit }),
  clusters: (values) => read("clusters", values),
  log: (before, limit) => read("log", { before, limit }),
  calibration: () => read("calibration"),
  calibrate: () => post("calibration", {}),
  enrol: (shots, fields) => post("enrol", asForm(shots, fields)),
  change: (operation, body) => post(operation, body),
  jobs: () => read("jobs"),
  newJob: (labels) => post("jobs", labels),
  addSamples: (id, shots, labels) => post(`jobs/${id}/samples`, asForm(shots, labels)),
  finishJob: (id) => post(`jobs/${id}/finish`, {}),
  cancelJob: async (id) => (await request(`jobs/${id}`, { method: "DELETE" })).json(),
  watchJob: (id) => new EventSource(`${BASE}jobs/${id}/events`),
  image: async (id, modality) => (await request(`rows/${id}/image?modality=${encodeURIComponent(modality)}`)).blob(),
};

/** Addresses of a row's pictures: all modalities side by side in small, or one in large. */
export const thumbnailUrl = (id) => `${BASE}rows/${id}/thumbnail`;
export const imageUrl = (id, modality) => `${BASE}rows/${id}/image?modality=${encodeURIComponent(modality)}`;

/** Asks until the service answers again. */
export const waitForService = async () => {
  for (let wait = 1; !connected; wait = Math.min(2 * wait, 15)) {
    await pause(wait);
    await api.health().catch(() => {});
  }
};
