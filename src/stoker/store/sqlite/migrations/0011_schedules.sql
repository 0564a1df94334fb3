-- Schedules: the columns are the fields of stoker.domain.schedule.Schedule. `open_jobs` is a JSON list.
CREATE TABLE schedules (
    name                 TEXT PRIMARY KEY,
    cron                 TEXT,
    every_us             INTEGER,
    timezone             TEXT NOT NULL,
    job                  BLOB NOT NULL,
    overlap              TEXT NOT NULL,
    catch_up_sec         REAL NOT NULL,
    catch_up_max         INTEGER NOT NULL,
    jitter_us            INTEGER NOT NULL,
    start_at             INTEGER,
    end_at               INTEGER,
    pause_after_failures INTEGER,
    created_at           INTEGER NOT NULL,
    updated_at           INTEGER NOT NULL,
    paused_at            INTEGER,
    pause_reason         TEXT,
    next_at              INTEGER,
    due_at               INTEGER,
    last_tick            INTEGER,
    last_run_at          INTEGER,
    last_job_id          TEXT,
    failures             INTEGER NOT NULL,
    open_jobs            TEXT NOT NULL,
    held_job             TEXT,
    app                  TEXT,
    orphaned_at          INTEGER
) WITHOUT ROWID;
CREATE INDEX schedules_due ON schedules (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX schedules_app ON schedules (app) WHERE app IS NOT NULL;

-- What became of each tick: the fields of stoker.domain.schedule.Tick. Ticks from `tick` to `last` share one row.
CREATE TABLE schedule_ticks (
    schedule TEXT NOT NULL,
    kind     TEXT NOT NULL,
    tick     INTEGER NOT NULL,
    last     INTEGER NOT NULL,
    outcome  TEXT NOT NULL,
    reason   TEXT,
    job_id   TEXT,
    at       INTEGER NOT NULL,
    PRIMARY KEY (schedule, kind, tick)
) WITHOUT ROWID;
CREATE INDEX schedule_ticks_at ON schedule_ticks (at);
CREATE INDEX schedule_ticks_latest ON schedule_ticks (schedule, tick);

-- What each app last declared: the fields of stoker.domain.schedule.Declaration.
CREATE TABLE schedule_apps (
    app     TEXT PRIMARY KEY,
    digest  BLOB NOT NULL,
    version INTEGER,
    at      INTEGER NOT NULL
) WITHOUT ROWID;
