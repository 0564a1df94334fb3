-- Queues from which nothing is claimed until they are resumed. They need not have jobs.
CREATE TABLE paused_queues (
    queue     text PRIMARY KEY,
    paused_at bigint NOT NULL
);

-- What workers say of job types: JSON with a description and the schema of the payload, for those who submit by hand.
CREATE TABLE job_types (
    type text PRIMARY KEY,
    note bytea NOT NULL
);
