// What all views share: who is here, what the service is, and the query that is being put together.

import { api } from "./api.js";

export const shared = { session: null, status: null, cameras: [] };

/** Whether the person may do what needs a role. */
export const may = (role) => {
  const order = ["viewer", "editor", "admin"];
  return order.indexOf(shared.session?.role ?? "") >= order.indexOf(role);
};

/** Reads the state of the service anew. */
export const refresh = async () => {
  const [status, cameras] = await Promise.all([api.status(), api.cameras()]);
  shared.status = status;
  shared.cameras = cameras.cameras;
};

export const modalities = () => shared.status.model.modalities;

/** The query and its answer; they outlive a change of view or language. */
export const query = {
  shots: [{}],
  options: { k: 12, identities: false, rate: null, camera: "", identity: "", since: "", until: "" },
  answer: null,
  samples: [],
  problem: null,
  busy: false,
  patches: null,
  showPatches: false,
};

/** Shots that have an image. */
export const filledShots = () => query.shots.filter((shot) => Object.keys(shot).length > 0);

export const clearQuery = () => Object.assign(query, { shots: [{}], answer: null, samples: [], problem: null, busy: false, patches: null });
