-- How a failed job failed. Those that failed before this column are one group per type.
ALTER TABLE history ADD COLUMN fingerprint text;
UPDATE history SET fingerprint = 'earlier:' || lanes.type FROM lanes WHERE lanes.id = history.lane_id AND status = 'failed';
CREATE INDEX history_fingerprint ON history (fingerprint, discarded_at, completed_at) WHERE status = 'failed';

-- What happened when, by coordinator (shard), queue and type: see stoker.domain.series. `wait` and `run` are histograms. A row is
-- rewritten every few seconds while its bucket is open.
CREATE TABLE series (
    bucket_sec      integer NOT NULL,
    at              bigint NOT NULL,
    queue           text NOT NULL,
    type            text NOT NULL,
    shard           bigint NOT NULL,
    submitted       bigint NOT NULL,
    completed       bigint NOT NULL,
    failed          bigint NOT NULL,
    cancelled       bigint NOT NULL,
    retried         bigint NOT NULL,
    queue_depth_max bigint NOT NULL,
    wait            bytea NOT NULL,
    run             bytea NOT NULL,
    PRIMARY KEY (bucket_sec, at, queue, type, shard)
) WITH (fillfactor = 80);

CREATE TABLE series_gauges (
    bucket_sec        integer NOT NULL,
    at                bigint NOT NULL,
    shard             bigint NOT NULL,
    queue_depth_max   bigint NOT NULL,
    threads_used_max  bigint NOT NULL,
    threads_max       bigint NOT NULL,
    workers_max       bigint NOT NULL,
    autoscaler_wanted bigint,
    PRIMARY KEY (bucket_sec, at, shard)
) WITH (fillfactor = 80);

-- What is being done to many jobs, a step at a time; the columns are the fields of stoker.store.base.Bulk.
CREATE TABLE bulks (
    id           text PRIMARY KEY,
    action       text NOT NULL,
    filter       text NOT NULL,
    status       text NOT NULL,
    total        bigint NOT NULL,
    total_capped boolean NOT NULL,
    done         bigint NOT NULL,
    changed      bigint NOT NULL,
    created_at   bigint NOT NULL,
    finished_at  bigint,
    cursor       bigint NOT NULL
);
CREATE INDEX bulks_created ON bulks (created_at);
CREATE INDEX bulks_running ON bulks (created_at) WHERE status = 'running';
