-- Queues from which nothing is claimed until they are resumed. They need not have jobs.
CREATE TABLE paused_queues (
    queue     TEXT PRIMARY KEY,
    paused_at INTEGER NOT NULL
) WITHOUT ROWID;

-- What workers say of job types: JSON with a description and the schema of the payload, for those who submit by hand.
CREATE TABLE job_types (
    type TEXT PRIMARY KEY,
    note BLOB NOT NULL
) WITHOUT ROWID;
