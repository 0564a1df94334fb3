/**
 * What the server sends and takes, by the names that the dashboard has for it. The shapes are generated from the OpenAPI
 * document (`make web-types`). Nothing outside `api/` and `live/` knows them.
 */

import type { components } from "./openapi";

type Schemas = components["schemas"];

export type WireJob = Schemas["JobView"];
export type WireJobs = Schemas["JobsView"];
export type WireStatus = WireJob["status"];
export type WireProgress = Schemas["ProgressView"];
export type WireAttempt = Schemas["AttemptView"];
export type WireJobSpec = Schemas["JobSpec"];
export type WireJobEdit = Schemas["JobEdit"];
export type WireWhy = Schemas["WhyView"];
export type WireLogs = Schemas["LogsView"];
export type WireLogEntry = Schemas["LogEntryView"];

export type WireDeadLetterGroup = Schemas["GroupView"];
export type WireDeadLetterGroups = Schemas["GroupsView"];
export type WireDeadLetterChoice = Schemas["DeadLetters"];
export type WireCount = Schemas["CountView"];
export type WireBulk = Schemas["BulkView"];
export type BulkAction = WireBulk["action"];

export type WireWorker = Schemas["SessionView"];
export type WireWorkers = Schemas["SessionsView"];
export type WireQueue = Schemas["QueueView"];
export type WireQueues = Schemas["QueuesView"];
export type WireJobType = Schemas["TypeView"];
export type WireJobDefaults = Schemas["JobDefaults"];
export type WireJobTypes = Schemas["TypesView"];

export type WireSchedule = Schemas["ScheduleView"];
export type WireSchedules = Schemas["SchedulesView"];
export type WireScheduleBody = Schemas["ScheduleBody"];
export type WireTick = Schemas["TickView"];
export type WireTicks = Schemas["TicksView"];
export type WireTimes = Schemas["TimesView"];

export type WireStats = Schemas["StatsView"];
export type WireScaling = Schemas["ScalingState"];
export type WirePoint = Schemas["PointView"];
export type WireSeries = Schemas["SeriesView"];
export type WireBreakdown = Schemas["BreakdownView"];
export type WireBreakdownRow = Schemas["BreakdownRow"];

export type WireHello = Schemas["HelloView"];
export type WireUpdate = Schemas["UpdateView"];
export type WireUpdateStats = Schemas["UpdateStats"];
/** A job as the live stream has it: enough for a row. */
export type WireLiveJob = Schemas["JobSummaryView"];

export type WireProblem = Schemas["ProblemDocument"];
