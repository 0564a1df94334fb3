/** One request: token, problem documents, and numbers kept whole. Paths are those of the REST reference. */

import { formatExact, parseExact } from "./json";
import { problemFrom, Unreachable } from "./problem";
import { askForToken, getToken } from "./token";

export type Params = Record<string, string | number | boolean | null | undefined>;

export interface Options {
  method?: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  params?: Params;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
  /** Keep integers beyond 2^53 as they were written; slower, for single jobs. */
  exact?: boolean;
}

export function urlOf(path: string, params: Params = {}): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    if (value !== undefined && value !== null && value !== "") search.set(key, String(value));
  }
  const query = search.toString();
  return query ? `${path}?${query}` : path;
}

export const segment = (value: string) => encodeURIComponent(value);

/** The answer as it is, for streams; throws for everything that is not a success. */
export async function open(path: string, options: Options = {}): Promise<Response> {
  const headers: Record<string, string> = { accept: "application/json", ...options.headers };
  const token = getToken();
  if (token !== null) headers.authorization = `Bearer ${token}`;
  const init: RequestInit = { method: options.method ?? "GET", headers };
  if (options.signal) init.signal = options.signal;
  if (options.body !== undefined) {
    headers["content-type"] = "application/json";
    init.body = formatExact(options.body);
  }
  let response: Response;
  try {
    response = await fetch(urlOf(path, options.params), init);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Unreachable();
  }
  if (response.ok) return response;
  // A token that was replaced while this was under way says nothing about the new one.
  if (response.status === 401 && token === getToken()) askForToken();
  throw problemFrom(response.status, response.statusText, await response.text().catch(() => ""));
}

export async function request<T>(path: string, options: Options = {}): Promise<T> {
  const response = await open(path, options);
  const text = await response.text();
  return (options.exact ? parseExact(text) : JSON.parse(text)) as T;
}
