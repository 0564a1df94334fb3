-- Times are integer microseconds, UTC. What all jobs of a lane have in common (queue, type, labels, threads) stands in
-- `lanes` alone, so that the rows which are written and rewritten thousands of times a second stay narrow.

CREATE TABLE meta (
    key   text PRIMARY KEY,
    value text NOT NULL
);

-- Numbers of blocks of sequence numbers: a coordinator takes a block and numbers its jobs from it.
CREATE SEQUENCE seq_blocks;

-- Jobs that can run in the same places stand in one lane. Lanes are made under a lock, in the order of their ids: a
-- coordinator that knows lane 7 knows all before it.
CREATE TABLE lanes (
    id              integer PRIMARY KEY,
    queue           text NOT NULL,
    type            text NOT NULL,
    labels          text,
    thread_demand   integer NOT NULL,
    group_key       text,
    concurrency_key text
);

-- Jobs that are not over. A row is inserted, perhaps updated, and deleted when its job ends; so pages are kept half free and
-- vacuumed often, and no index holds more than the statement that needs it.
CREATE TABLE jobs (
    seq                 bigint PRIMARY KEY,
    created_at          bigint NOT NULL,
    run_at              bigint NOT NULL,
    claimed_at          bigint,
    started_at          bigint,
    cancel_requested_at bigint,
    timeout_sec         double precision,
    lane_id             integer NOT NULL,
    claim_id            integer NOT NULL,
    memory_mb           integer,
    pending_deps        integer NOT NULL,
    priority            smallint NOT NULL,
    rank                smallint NOT NULL,
    attempt             smallint NOT NULL,
    max_attempts        smallint NOT NULL,
    crashes             smallint NOT NULL,
    threads_granted     smallint,
    id                  uuid NOT NULL,
    status              text NOT NULL,
    on_oversize         text NOT NULL,
    worker_id           text,
    name                text,
    metadata            text,
    error               bytea,
    payload             bytea NOT NULL
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.1
);
CREATE UNIQUE INDEX jobs_id ON jobs (id);
-- What `claim` reads, and nothing else: jobs that are not due or running are not in its way.
CREATE INDEX jobs_ready ON jobs (lane_id, rank, seq) WHERE status = 'queued';
CREATE INDEX jobs_due ON jobs (run_at, seq) WHERE status = 'scheduled';
CREATE INDEX jobs_running ON jobs (worker_id) WHERE status = 'running';
-- Most jobs have no name, and then these two cost nothing.
CREATE INDEX jobs_name ON jobs (name, seq) WHERE name IS NOT NULL;

-- Jobs that are over, with the times that people ask for. Written once, read seldom, deleted by age.
CREATE TABLE history (
    seq                 bigint PRIMARY KEY,
    created_at          bigint NOT NULL,
    run_at              bigint NOT NULL,
    claimed_at          bigint,
    started_at          bigint,
    completed_at        bigint NOT NULL,
    cancel_requested_at bigint,
    discarded_at        bigint,
    timeout_sec         double precision,
    cpu_us              bigint,
    peak_memory_kb      bigint,
    queue_us            bigint GENERATED ALWAYS AS (started_at - created_at) STORED,
    run_us              bigint GENERATED ALWAYS AS (completed_at - started_at) STORED,
    total_us            bigint GENERATED ALWAYS AS (completed_at - created_at) STORED,
    lane_id             integer NOT NULL,
    claim_id            integer NOT NULL,
    memory_mb           integer,
    pending_deps        integer NOT NULL,
    priority            smallint NOT NULL,
    rank                smallint NOT NULL,
    attempt             smallint NOT NULL,
    max_attempts        smallint NOT NULL,
    crashes             smallint NOT NULL,
    threads_granted     smallint,
    id                  uuid NOT NULL,
    status              text NOT NULL,
    on_oversize         text NOT NULL,
    worker_id           text,
    name                text,
    metadata            text,
    error               bytea,
    payload             bytea NOT NULL,
    result              bytea
) WITH (
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.05
);
CREATE UNIQUE INDEX history_id ON history (id);
CREATE INDEX history_ended ON history (status, completed_at);
CREATE INDEX history_name ON history (name, seq) WHERE name IS NOT NULL;
CREATE INDEX history_dead ON history (seq) WHERE status = 'failed' AND discarded_at IS NULL;

-- Every attempt that did not complete its job; a completing or running one lives on the job itself.
CREATE TABLE attempts (
    seq            bigint NOT NULL,
    claim_id       integer NOT NULL,
    attempt        smallint NOT NULL,
    worker_id      text,
    claimed_at     bigint,
    started_at     bigint,
    finished_at    bigint,
    kind           text NOT NULL,
    charged        boolean NOT NULL,
    status         text NOT NULL,
    error          bytea,
    retry_delay_us bigint,
    cpu_us         bigint,
    peak_memory_kb bigint,
    PRIMARY KEY (seq, claim_id)
);

-- Totals, kept in the transactions that change them. Every coordinator adds to a shard of its own, so that two never wait for
-- each other's commit; a reader sums them up.
CREATE TABLE counts (
    shard  smallint NOT NULL,
    queue  text NOT NULL,
    type   text NOT NULL,
    status text NOT NULL,
    count  bigint NOT NULL,
    PRIMARY KEY (shard, queue, type, status)
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE idempotency_keys (
    client     text NOT NULL,
    key        text NOT NULL,
    digest     bytea NOT NULL,
    job_id     uuid NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (client, key)
);
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);

CREATE TABLE sessions (
    id                text PRIMARY KEY,
    name              text NOT NULL,
    threads           integer NOT NULL,
    types             text NOT NULL,
    queues            text,
    labels            text NOT NULL,
    status            text NOT NULL,
    registered_at     bigint NOT NULL,
    last_heartbeat_at bigint NOT NULL,
    threads_used      integer NOT NULL,
    endpoint          text,
    host              text,
    pid               integer
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
