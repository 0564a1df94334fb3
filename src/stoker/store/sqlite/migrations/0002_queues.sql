-- Queues from which nothing is claimed until they are resumed. They need not have jobs.
CREATE TABLE paused_queues (
    queue     TEXT PRIMARY KEY,
    paused_at INTEGER NOT NULL
) WITHOUT ROWID;
