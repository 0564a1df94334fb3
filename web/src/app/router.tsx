/** All routes. Each page is a chunk of its own; what stands in the URL is checked here. */

import { createRootRoute, createRoute, createRouter, lazyRouteComponent } from "@tanstack/react-router";
import { Layout } from "./Layout";
import { NotFound } from "./NotFound";
import { RouteError } from "./RouteError";

const root = createRootRoute({ component: Layout, notFoundComponent: NotFound, errorComponent: RouteError });

const text = (value: unknown): string | undefined =>
  typeof value === "string" && value ? value : typeof value === "number" ? String(value) : undefined;
const natural = (value: unknown): number | undefined =>
  Number.isSafeInteger(Number(value)) && Number(value) > 0 ? Number(value) : undefined;

export interface OverviewSearch {
  /** How far back: `15m`, `1h`, … */
  range?: string | undefined;
}

export interface JobsSearch {
  /** The search as typed. */
  q?: string | undefined;
  /** Columns, separated by commas; the usual ones when absent. */
  cols?: string | undefined;
  /** The first row in view. */
  at?: number | undefined;
}

export interface SubmitSearch {
  type?: string | undefined;
  /** A job to begin with: edit and resubmit. */
  from?: string | undefined;
}

export interface DeadLettersSearch {
  /** The group that is open, by its fingerprint. */
  group?: string | undefined;
}

export interface SchedulesSearch {
  /** The schedule that is looked at; all when absent. */
  name?: string | undefined;
}

export interface AnalyticsSearch {
  range?: string | undefined;
  by?: "type" | "queue" | undefined;
  /** Only this type or queue. */
  key?: string | undefined;
}

const overview = createRoute({
  getParentRoute: () => root,
  path: "/",
  validateSearch: (search: Record<string, unknown>): OverviewSearch => ({ range: text(search.range) }),
  component: lazyRouteComponent(() => import("@/routes/OverviewPage"), "OverviewPage"),
});
const jobs = createRoute({
  getParentRoute: () => root,
  path: "/jobs",
  validateSearch: (search: Record<string, unknown>): JobsSearch => ({
    q: text(search.q),
    cols: text(search.cols),
    at: natural(search.at),
  }),
  component: lazyRouteComponent(() => import("@/routes/JobsPage"), "JobsPage"),
});
const job = createRoute({
  getParentRoute: () => root,
  path: "/jobs/$id",
  component: lazyRouteComponent(() => import("@/routes/JobPage"), "JobPage"),
});
const workers = createRoute({
  getParentRoute: () => root,
  path: "/workers",
  component: lazyRouteComponent(() => import("@/routes/WorkersPage"), "WorkersPage"),
});
const queues = createRoute({
  getParentRoute: () => root,
  path: "/queues",
  component: lazyRouteComponent(() => import("@/routes/QueuesPage"), "QueuesPage"),
});
const deadLetters = createRoute({
  getParentRoute: () => root,
  path: "/dead-letters",
  validateSearch: (search: Record<string, unknown>): DeadLettersSearch => ({ group: text(search.group) }),
  component: lazyRouteComponent(() => import("@/routes/DeadLettersPage"), "DeadLettersPage"),
});
const schedules = createRoute({
  getParentRoute: () => root,
  path: "/schedules",
  validateSearch: (search: Record<string, unknown>): SchedulesSearch => ({ name: text(search.name) }),
  component: lazyRouteComponent(() => import("@/routes/SchedulesPage"), "SchedulesPage"),
});
const analytics = createRoute({
  getParentRoute: () => root,
  path: "/analytics",
  validateSearch: (search: Record<string, unknown>): AnalyticsSearch => ({
    range: text(search.range),
    by: search.by === "queue" || search.by === "type" ? search.by : undefined,
    key: text(search.key),
  }),
  component: lazyRouteComponent(() => import("@/routes/AnalyticsPage"), "AnalyticsPage"),
});
const submit = createRoute({
  getParentRoute: () => root,
  path: "/submit",
  validateSearch: (search: Record<string, unknown>): SubmitSearch => ({
    type: text(search.type),
    from: text(search.from),
  }),
  component: lazyRouteComponent(() => import("@/routes/SubmitPage"), "SubmitPage"),
});

export const router = createRouter({
  routeTree: root.addChildren([
    overview,
    jobs,
    job,
    workers,
    queues,
    schedules,
    deadLetters,
    analytics,
    submit,
  ]),
  basepath: "/dashboard",
  defaultPreload: "intent",
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
