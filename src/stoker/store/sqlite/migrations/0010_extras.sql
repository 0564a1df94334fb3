-- What a job uses of the optional features, as JSON (`stoker.domain.extras`); null for a job that uses none.
ALTER TABLE jobs ADD COLUMN extras TEXT;

-- The unfinished job that holds each unique key; only jobs with such a key are here.
CREATE TABLE unique_keys (
    key    TEXT PRIMARY KEY,
    job_id TEXT NOT NULL
) WITHOUT ROWID;

-- When a job with an expiry or a deadline is to be looked at next; only such jobs are here.
CREATE TABLE time_limits (
    seq INTEGER PRIMARY KEY,
    at  INTEGER NOT NULL
);
CREATE INDEX time_limits_at ON time_limits (at, seq);
