import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { request, urlOf } from "./client";
import { ApiError, describe as explain, Unreachable } from "./problem";
import { forgetToken, isTokenNeeded, setToken } from "./token";

const PROBLEM = {
  type: "urn:stoker:problem:invalid",
  title: "The request is not valid",
  status: 422,
  detail: "priority is too large",
  request_id: "r1",
  errors: [{ field: "priority", message: "at most 100" }],
};

function answer(status: number, body: string) {
  const fetch = vi.fn(async (_url: string, _init: RequestInit) => new Response(body, { status }));
  vi.stubGlobal("fetch", fetch);
  return fetch;
}

describe("request", () => {
  beforeEach(forgetToken);
  afterEach(() => vi.unstubAllGlobals());

  it("leaves out what is not given", () =>
    expect(urlOf("/jobs", { status: "failed", type: undefined, text: "", offset: 0, name: "a b&c" })).toBe(
      "/jobs?status=failed&offset=0&name=a+b%26c",
    ));

  it("sends the token", async () => {
    const fetch = answer(200, "{}");
    setToken("secret", false);
    await request("/stats");
    expect(new Headers(fetch.mock.calls[0]?.[1].headers).get("authorization")).toBe("Bearer secret");
  });

  it("asks for a token when the server wants one", async () => {
    answer(401, "{}");
    await expect(request("/stats")).rejects.toBeInstanceOf(ApiError);
    expect(isTokenNeeded()).toBe(true);
    setToken("x", false);
    expect(isTokenNeeded()).toBe(false);
  });

  it("tells a problem with its fields and its number", async () => {
    answer(422, JSON.stringify(PROBLEM));
    const error = await request("/jobs").catch((reason: unknown) => reason);
    expect(explain(error)).toMatchObject({
      title: "The request is not valid",
      detail: "priority is too large (priority: at most 100)",
      requestId: "r1",
    });
  });

  it("survives an answer that is no problem document", async () => {
    answer(502, "<html>Bad gateway</html>");
    const error = await request("/jobs").catch((reason: unknown) => reason);
    expect(error).toMatchObject({ status: 502 });
  });

  it("says that nobody answers", async () => {
    vi.stubGlobal("fetch", () => Promise.reject(new TypeError("Failed to fetch")));
    await expect(request("/jobs")).rejects.toBeInstanceOf(Unreachable);
  });

  it("keeps every digit where it is asked to, both ways", async () => {
    const fetch = answer(200, '{"n":12345678901234567890}');
    const got = await request<{ n: bigint }>("/jobs", {
      method: "POST",
      body: { n: 98765432109876543210n },
      exact: true,
    });
    expect(got.n).toBe(12345678901234567890n);
    expect(fetch.mock.calls[0]?.[1].body).toBe('{"n":98765432109876543210}');
  });
});
