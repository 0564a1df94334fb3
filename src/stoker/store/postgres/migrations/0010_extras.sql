-- What a job uses of the optional features, as JSON (`stoker.domain.extras`); null for a job that uses none.
ALTER TABLE jobs ADD COLUMN extras text;
ALTER TABLE history ADD COLUMN extras text;

-- The unfinished job that holds each unique key; only jobs with such a key are here.
CREATE TABLE unique_keys (
    key    text PRIMARY KEY,
    job_id uuid NOT NULL
) WITH (fillfactor = 80, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0.02);

-- When a job with an expiry or a deadline is to be looked at next; only such jobs are here.
CREATE TABLE time_limits (
    seq bigint PRIMARY KEY,
    at  bigint NOT NULL
);
CREATE INDEX time_limits_at ON time_limits (at, seq);
