-- Schedules: the columns are the fields of stoker.domain.schedule.Schedule. `open_jobs` is a JSON list.
CREATE TABLE schedules (
    name                 text COLLATE "C" PRIMARY KEY,
    cron                 text,
    every_us             bigint,
    timezone             text NOT NULL,
    job                  bytea NOT NULL,
    overlap              text NOT NULL,
    catch_up_sec         double precision NOT NULL,
    catch_up_max         bigint NOT NULL,
    jitter_us            bigint NOT NULL,
    start_at             bigint,
    end_at               bigint,
    pause_after_failures bigint,
    created_at           bigint NOT NULL,
    updated_at           bigint NOT NULL,
    paused_at            bigint,
    pause_reason         text,
    next_at              bigint,
    due_at               bigint,
    last_tick            bigint,
    last_run_at          bigint,
    last_job_id          text,
    failures             bigint NOT NULL,
    open_jobs            text NOT NULL,
    held_job             text,
    app                  text,
    orphaned_at          bigint
);
CREATE INDEX schedules_due ON schedules (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX schedules_app ON schedules (app) WHERE app IS NOT NULL;

-- What became of each tick: the fields of stoker.domain.schedule.Tick. Ticks from `tick` to `last` share one row.
CREATE TABLE schedule_ticks (
    schedule text NOT NULL,
    kind     text NOT NULL,
    tick     bigint NOT NULL,
    last     bigint NOT NULL,
    outcome  text NOT NULL,
    reason   text,
    job_id   text,
    at       bigint NOT NULL,
    PRIMARY KEY (schedule, kind, tick)
);
CREATE INDEX schedule_ticks_at ON schedule_ticks (at);
CREATE INDEX schedule_ticks_latest ON schedule_ticks (schedule, tick);

-- What each app last declared: the fields of stoker.domain.schedule.Declaration.
CREATE TABLE schedule_apps (
    app     text PRIMARY KEY,
    digest  bytea NOT NULL,
    version bigint,
    at      bigint NOT NULL
);
