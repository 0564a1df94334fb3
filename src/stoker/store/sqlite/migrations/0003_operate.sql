-- Finding jobs by their names. Most have none, and then this costs nothing.
CREATE INDEX jobs_name ON jobs (name) WHERE name IS NOT NULL;

-- How a failed job failed. Those that failed before this column are one group per type.
ALTER TABLE jobs ADD COLUMN fingerprint TEXT;
UPDATE jobs SET fingerprint = 'earlier:' || type WHERE status = 'failed';
CREATE INDEX jobs_fingerprint ON jobs (fingerprint, discarded_at, completed_at) WHERE status = 'failed';

-- What happened when, by coordinator (shard), queue and type: see stoker.domain.series. `wait` and `run` are histograms.
CREATE TABLE series (
    bucket_sec      INTEGER NOT NULL,
    at              INTEGER NOT NULL,
    queue           TEXT NOT NULL,
    type            TEXT NOT NULL,
    shard           INTEGER NOT NULL,
    submitted       INTEGER NOT NULL,
    completed       INTEGER NOT NULL,
    failed          INTEGER NOT NULL,
    cancelled       INTEGER NOT NULL,
    retried         INTEGER NOT NULL,
    queue_depth_max INTEGER NOT NULL,
    wait            BLOB NOT NULL,
    run             BLOB NOT NULL,
    PRIMARY KEY (bucket_sec, at, queue, type, shard)
) WITHOUT ROWID;

CREATE TABLE series_gauges (
    bucket_sec        INTEGER NOT NULL,
    at                INTEGER NOT NULL,
    shard             INTEGER NOT NULL,
    queue_depth_max   INTEGER NOT NULL,
    threads_used_max  INTEGER NOT NULL,
    threads_max       INTEGER NOT NULL,
    workers_max       INTEGER NOT NULL,
    autoscaler_wanted INTEGER,
    PRIMARY KEY (bucket_sec, at, shard)
) WITHOUT ROWID;

-- What is being done to many jobs, a step at a time; the columns are the fields of stoker.store.base.Bulk.
CREATE TABLE bulks (
    id           TEXT PRIMARY KEY,
    action       TEXT NOT NULL,
    filter       TEXT NOT NULL,
    status       TEXT NOT NULL,
    total        INTEGER NOT NULL,
    total_capped INTEGER NOT NULL,
    done         INTEGER NOT NULL,
    changed      INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    finished_at  INTEGER,
    cursor       INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX bulks_created ON bulks (created_at);
CREATE INDEX bulks_running ON bulks (created_at) WHERE status = 'running';
