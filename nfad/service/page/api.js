// The service's HTTP interface, as docs/service.md states it. Every failure is an ApiError with one sentence.

export class ApiError extends Error {
  // status 0: no answer at all. retryAfter: seconds after which the same request may do better, or null.
  constructor(sentence, status, retryAfter = null) {
    super(sentence);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

const SILENT = "The service does not answer; check that it runs and that this device is on its network.";

export async function send(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(SILENT, 0, 5);
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  const sentence = body?.error ?? `The service answered with ${response.status} ${response.statusText}.`;
  const seconds = Number.parseInt(response.headers.get("Retry-After"), 10);
  throw new ApiError(sentence, response.status, Number.isNaN(seconds) ? null : seconds);
}

const answered = async (path, options) => {
  const response = await send(path, options);
  return response.status === 204 ? null : response.json();
};

const put = (method, path, body) =>
  answered(path, { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

const asQuery = given => {
  const kept = Object.entries(given).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return new URLSearchParams(kept).toString();
};

const named = name => `/v1/models/${encodeURIComponent(name)}`;

export const me = () => answered("/v1/me");
export const login = token => put("POST", "/v1/login", { token });
export const logout = () => answered("/v1/logout", { method: "POST" });
export const models = signal => answered("/v1/models", { signal }).then(body => body.models);
export const setRate = (name, rate) => put("PUT", `${named(name)}/rate`, { rate });
export const whatIf = (name, rate, signal) => answered(`${named(name)}/what-if?${asQuery({ rate })}`, { signal });
export const changes = given => answered(`/v1/changes?${asQuery(given)}`);
export const drift = model => answered(`/v1/drift?${asQuery({ model })}`);
export const review = model => answered(`/v1/review?${asQuery({ model })}`);
export const exportAddress = model => `/v1/review/export?${asQuery({ model })}`;
export const inspections = (filters, signal) => answered(`/v1/inspections?${asQuery(filters)}`, { signal });
export const inspection = id => answered(`/v1/inspections/${encodeURIComponent(id)}`);
export const setReview = (id, verdict, note) =>
  put("PUT", `/v1/inspections/${encodeURIComponent(id)}/review`, { verdict, note });
export const takeBackReview = id => answered(`/v1/inspections/${encodeURIComponent(id)}/review`, { method: "DELETE" });

export function inspect(model, file, name) {
  const form = new FormData();
  form.append("image", file, name);
  return answered(`/v1/inspect?${asQuery({ model })}`, { method: "POST", body: form });
}
