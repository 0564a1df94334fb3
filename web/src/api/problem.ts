/** What went wrong, in words that say what to do next. */

import type { WireProblem } from "./wire";

export class ApiError extends Error {
  readonly status: number;
  readonly title: string;
  readonly requestId: string | null;
  readonly fields: { field: string; message: string }[];

  constructor(
    status: number,
    title: string,
    detail: string,
    requestId: string | null = null,
    fields: { field: string; message: string }[] = [],
  ) {
    super(detail || title);
    this.name = "ApiError";
    this.status = status;
    this.title = title;
    this.requestId = requestId;
    this.fields = fields;
  }
}

/** The server could not be reached at all. */
export class Unreachable extends Error {
  constructor() {
    super("The server does not answer. Is `stoker up` (or `stoker serve`) running?");
    this.name = "Unreachable";
  }
}

export function problemFrom(status: number, statusText: string, body: string): ApiError {
  let problem: Partial<WireProblem> = {};
  try {
    const parsed: unknown = JSON.parse(body);
    if (typeof parsed === "object" && parsed !== null) problem = parsed as Partial<WireProblem>;
  } catch {
    // A proxy's page or nothing: the status has to do.
  }
  const title = problem.title ?? statusText ?? `HTTP ${status}`;
  return new ApiError(status, title, problem.detail ?? "", problem.request_id ?? null, problem.errors ?? []);
}

/** What the server said about one field of what it refused; nothing when that field was not the reason. */
export function refusals(error: unknown, field: string): string[] {
  if (!(error instanceof ApiError) || error.status !== 422) return [];
  return error.fields.flatMap((each) => (each.field === field ? [each.message] : []));
}

/** The first thing that the server said about each field of what it refused. */
export function refusedFields(error: unknown): Record<string, string> {
  if (!(error instanceof ApiError) || error.status !== 422) return {};
  return Object.fromEntries(error.fields.toReversed().map(({ field, message }) => [field, message]));
}

const NEXT: Record<number, string> = {
  401: "Give the server's token.",
  403: "This token may not do that; ask for one with a wider scope.",
  404: "It may have been removed, or this server is older than the dashboard.",
  409: "Its status has changed meanwhile; look again.",
  429: "Wait a moment, then try again.",
  503: "The server is starting, stopping or has lost its store; try again in a moment.",
};

export interface Described {
  title: string;
  detail: string;
  next: string | null;
  requestId: string | null;
}

export function describe(error: unknown): Described {
  if (error instanceof ApiError) {
    const fields = error.fields.map(({ field, message }) => `${field}: ${message}`).join("; ");
    const detail = fields && !error.message.includes(fields) ? `${error.message} (${fields})` : error.message;
    return { title: error.title, detail, next: NEXT[error.status] ?? null, requestId: error.requestId };
  }
  if (error instanceof Unreachable)
    return { title: "Server unreachable", detail: error.message, next: null, requestId: null };
  const message = error instanceof Error ? error.message : String(error);
  return {
    title: "Something went wrong in the page",
    detail: message,
    next: "Reload the page.",
    requestId: null,
  };
}
