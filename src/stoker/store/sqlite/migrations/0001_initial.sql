-- Times are integer microseconds, UTC. The columns of `jobs` stand in the order of the fields of `stoker.domain.job.Job`,
-- with the large ones last: SQLite moves what does not fit a page into overflow pages that a scan never touches.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- Jobs that can run in the same places stand in one lane.
CREATE TABLE lanes (
    id              INTEGER PRIMARY KEY,
    queue           TEXT NOT NULL,
    type            TEXT NOT NULL,
    labels          TEXT,
    thread_demand   INTEGER NOT NULL,
    group_key       TEXT,
    concurrency_key TEXT
);

CREATE TABLE jobs (
    seq                 INTEGER PRIMARY KEY,
    id                  TEXT NOT NULL,
    type                TEXT NOT NULL,
    name                TEXT,
    queue               TEXT NOT NULL,
    lane_id             INTEGER NOT NULL,
    priority            INTEGER NOT NULL,
    rank                INTEGER NOT NULL,
    status              TEXT NOT NULL,
    claim_id            INTEGER NOT NULL,
    attempt             INTEGER NOT NULL,
    max_attempts        INTEGER NOT NULL,
    crashes             INTEGER NOT NULL,
    thread_demand       INTEGER NOT NULL,
    threads_granted     INTEGER,
    on_oversize         TEXT NOT NULL,
    timeout_sec         REAL,
    memory_mb           INTEGER,
    labels              TEXT,
    group_key           TEXT,
    concurrency_key     TEXT,
    pending_deps        INTEGER NOT NULL,
    metadata            TEXT,
    worker_id           TEXT,
    created_at          INTEGER NOT NULL,
    run_at              INTEGER NOT NULL,
    claimed_at          INTEGER,
    started_at          INTEGER,
    completed_at        INTEGER,
    cancel_requested_at INTEGER,
    discarded_at        INTEGER,
    cpu_us              INTEGER,
    peak_memory_kb      INTEGER,
    error               BLOB,
    payload             BLOB NOT NULL,
    result              BLOB
);

CREATE UNIQUE INDEX jobs_id ON jobs (id);
-- What `claim` reads, and nothing else: jobs that are not due, running or done are not in its way.
CREATE INDEX jobs_ready ON jobs (lane_id, rank, seq) WHERE status = 'queued';
CREATE INDEX jobs_due ON jobs (run_at, seq) WHERE status = 'scheduled';
CREATE INDEX jobs_running ON jobs (worker_id) WHERE status = 'running';
CREATE INDEX jobs_finished ON jobs (status, completed_at) WHERE completed_at IS NOT NULL;
CREATE INDEX jobs_dead ON jobs (seq) WHERE status = 'failed' AND discarded_at IS NULL;
CREATE INDEX jobs_blocked ON jobs (seq) WHERE status = 'blocked';

-- Every attempt that did not complete its job; a completing or running one lives on the job itself.
CREATE TABLE attempts (
    seq            INTEGER NOT NULL,
    claim_id       INTEGER NOT NULL,
    attempt        INTEGER NOT NULL,
    worker_id      TEXT,
    claimed_at     INTEGER,
    started_at     INTEGER,
    finished_at    INTEGER,
    kind           TEXT NOT NULL,
    charged        INTEGER NOT NULL,
    status         TEXT NOT NULL,
    error          BLOB,
    retry_delay_us INTEGER,
    cpu_us         INTEGER,
    peak_memory_kb INTEGER,
    PRIMARY KEY (seq, claim_id)
) WITHOUT ROWID;

-- Totals, kept in the transactions that change them.
CREATE TABLE counts (
    queue  TEXT NOT NULL,
    type   TEXT NOT NULL,
    status TEXT NOT NULL,
    count  INTEGER NOT NULL,
    PRIMARY KEY (queue, type, status)
) WITHOUT ROWID;

CREATE TABLE idempotency_keys (
    client     TEXT NOT NULL,
    key        TEXT NOT NULL,
    digest     BLOB NOT NULL,
    job_id     TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (client, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);

CREATE TABLE sessions (
    id                TEXT PRIMARY KEY,
    name              TEXT NOT NULL,
    threads           INTEGER NOT NULL,
    types             TEXT NOT NULL,
    queues            TEXT,
    labels            TEXT NOT NULL,
    status            TEXT NOT NULL,
    registered_at     INTEGER NOT NULL,
    last_heartbeat_at INTEGER NOT NULL,
    threads_used      INTEGER NOT NULL,
    endpoint          TEXT,
    host              TEXT,
    pid               INTEGER
) WITHOUT ROWID;
