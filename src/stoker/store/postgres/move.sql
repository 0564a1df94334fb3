-- Statements for moving jobs between databases: see stoker.store.move.

-- name: move_snapshot
-- One snapshot for the whole export, however long it takes to write the file. See `BEGIN` in database.py for the plans.
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL jit = off;
SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0

-- name: move_jobs
-- The next jobs of both tables, in the order of their numbers.
SELECT * FROM (
    (SELECT {hot} FROM stoker.jobs WHERE seq > $1 ORDER BY seq LIMIT $2)
    UNION ALL
    (SELECT {final} FROM stoker.history WHERE seq > $1 ORDER BY seq LIMIT $2)
) AS found
ORDER BY seq LIMIT $2

-- name: move_attempts
SELECT seq, {columns} FROM stoker.attempts WHERE seq BETWEEN $1 AND $2 ORDER BY seq, claim_id

-- name: move_keys
-- Keys that are alive, after a given one, with the lane of their job.
SELECT * FROM (
    SELECT k.client, k.key, k.digest, k.job_id::text, k.expires_at,
           coalesce((SELECT lane_id FROM stoker.jobs WHERE jobs.id = k.job_id),
                    (SELECT lane_id FROM stoker.history WHERE history.id = k.job_id)) AS lane_id
    FROM stoker.idempotency_keys AS k
    WHERE (k.client, k.key) > ($1, $2) AND k.expires_at > $3
    ORDER BY k.client, k.key LIMIT $4
) AS found

-- name: move_outputs
-- Jobs that wrote something, after a given one, with the lane of each.
SELECT key, job_id, created_at, extents,
       coalesce((SELECT lane_id FROM stoker.jobs WHERE jobs.id = outputs.job_id::uuid),
                (SELECT lane_id FROM stoker.history WHERE history.id = outputs.job_id::uuid)) AS lane_id
FROM stoker.outputs WHERE key > $1 ORDER BY key LIMIT $2

-- name: move_chunks
SELECT output, claim_id, raw_bytes, data FROM stoker.output_chunks WHERE output = ANY($1::bigint[]) ORDER BY output, seq

-- name: lock_imports
-- Two imports of one file must not both find that a job is missing. Held until the commit.
SELECT pg_advisory_xact_lock(6010243128)

-- name: move_put_keys
-- A key that is alive keeps its job; one that has expired, or whose job is gone, makes room. All transactions do it in the same order, so none waits in a circle.
INSERT INTO stoker.idempotency_keys AS known (client, key, digest, job_id, expires_at)
SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::uuid[], $5::bigint[]) AS v (client, key, digest, job_id, expires_at)
ORDER BY client, key
ON CONFLICT (client, key) DO UPDATE SET
    digest = excluded.digest, job_id = excluded.job_id, expires_at = excluded.expires_at
WHERE known.expires_at <= $6
   OR NOT EXISTS (SELECT FROM stoker.jobs WHERE jobs.id = known.job_id)
      AND NOT EXISTS (SELECT FROM stoker.history WHERE history.id = known.job_id)
RETURNING 1

-- name: analyze
-- What was just filled is not what the statistics know. Where another role owns the tables, the server only warns.
BEGIN; SET LOCAL statement_timeout = 0;
ANALYZE stoker.jobs, stoker.history, stoker.attempts, stoker.idempotency_keys, stoker.lanes,
    stoker.outputs, stoker.output_chunks;
COMMIT
