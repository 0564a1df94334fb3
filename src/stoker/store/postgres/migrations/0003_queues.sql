-- Queues from which nothing is claimed until they are resumed. They need not have jobs.
CREATE TABLE paused_queues (
    queue     text PRIMARY KEY,
    paused_at bigint NOT NULL
);
