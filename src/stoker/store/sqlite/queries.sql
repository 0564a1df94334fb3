-- Every statement that the embedded store runs, by name. `{rows}` and `{columns}` are filled in by the code that
-- builds multi-row statements; nothing that a user sent is ever part of a statement's text.

-- name: insert_jobs
INSERT INTO jobs ({columns}) VALUES {rows}

-- name: claim_heads
-- The head of one lane, in running order, straight off the partial index: what stands behind the head is never read.
-- `+?` hides the values from the query planner, which would otherwise plan anew for each of them: 23 µs instead of 1.
SELECT {columns} FROM jobs
WHERE lane_id = +? AND status = 'queued'
ORDER BY rank, seq LIMIT +?

-- name: claim_jobs
-- One statement for many jobs: the interpreter is not entered between rows. The claim number only ever grows.
UPDATE jobs
SET status = 'running', claim_id = claim_id + 1, attempt = attempt + 1, worker_id = v.column2,
    threads_granted = v.column3, claimed_at = v.column4, started_at = NULL
FROM (VALUES {rows}) AS v
WHERE jobs.seq = v.column1 AND jobs.status = 'queued'

-- name: complete_jobs
-- The fence: the claim number and the status that the write may leave.
UPDATE jobs
SET status = 'completed', started_at = coalesce(v.column3, started_at, claimed_at), completed_at = v.column4, cpu_us = v.column5,
    peak_memory_kb = v.column6, result = v.column7, error = NULL
FROM (VALUES {rows}) AS v
WHERE jobs.seq = v.column1 AND jobs.claim_id = v.column2 AND jobs.status = 'running'

-- name: start_job
UPDATE jobs SET started_at = ?3 WHERE seq = ?1 AND claim_id = ?2 AND status = 'running' AND started_at IS NULL

-- name: job_by_seq
SELECT {columns} FROM jobs WHERE seq = ?

-- name: job_by_id
SELECT {columns} FROM jobs WHERE id = ?

-- name: end_attempt
-- The end of an attempt that did not complete the job; fenced like complete_jobs.
UPDATE jobs
SET status = ?3, attempt = ?4, crashes = ?5, run_at = ?6, started_at = ?7, completed_at = ?8, worker_id = ?9,
    threads_granted = ?10, claimed_at = ?11, cpu_us = ?12, peak_memory_kb = ?13, error = ?14
WHERE seq = ?1 AND claim_id = ?2 AND status = 'running'

-- name: insert_attempt
INSERT OR REPLACE INTO attempts
    (seq, claim_id, attempt, worker_id, claimed_at, started_at, finished_at, kind, charged, error, retry_delay_us,
     cpu_us, peak_memory_kb, status)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: attempt_end
-- How an attempt ended and the status that its job got by it, for a report that is sent twice.
SELECT kind, status FROM attempts WHERE seq = ? AND claim_id = ?

-- name: attempts_of
SELECT claim_id, attempt, worker_id, claimed_at, started_at, finished_at, kind, charged, error, retry_delay_us,
       cpu_us, peak_memory_kb
FROM attempts WHERE seq = ? ORDER BY claim_id

-- name: cancel_waiting
UPDATE jobs SET status = 'cancelled', cancel_requested_at = ?2, completed_at = ?2
WHERE seq = ?1 AND status IN ('blocked', 'scheduled', 'queued')

-- name: request_cancel
UPDATE jobs SET cancel_requested_at = ?2 WHERE seq = ?1 AND status = 'running' AND cancel_requested_at IS NULL

-- name: replay_job
UPDATE jobs
SET status = 'queued', attempt = 0, crashes = 0, run_at = ?2, worker_id = NULL, claimed_at = NULL, started_at = NULL,
    completed_at = NULL, cancel_requested_at = NULL, discarded_at = NULL, threads_granted = NULL, cpu_us = NULL,
    peak_memory_kb = NULL, error = NULL, result = NULL
WHERE seq = ?1 AND status IN ('failed', 'cancelled')

-- name: hurry_job
UPDATE jobs SET status = 'queued', run_at = ?2 WHERE seq = ?1 AND status = 'scheduled'

-- name: discard_job
UPDATE jobs SET discarded_at = ?2 WHERE seq = ?1 AND status = 'failed' AND discarded_at IS NULL

-- name: due_jobs
-- `+?` for the reason that claim_heads gives.
SELECT seq, lane_id, queue, type FROM jobs
WHERE status = 'scheduled' AND run_at <= +? ORDER BY run_at, seq LIMIT +?

-- name: promote_job
UPDATE jobs SET status = 'queued' WHERE seq = ? AND status = 'scheduled'

-- name: next_due
SELECT min(run_at) FROM jobs WHERE status = 'scheduled'

-- name: active_lanes
-- A skip scan: one probe of the index per lane, however many jobs stand in it.
WITH RECURSIVE lane (id) AS (
    SELECT min(lane_id) FROM jobs WHERE status = 'queued'
    UNION ALL
    SELECT (SELECT min(lane_id) FROM jobs WHERE status = 'queued' AND lane_id > lane.id)
    FROM lane WHERE lane.id IS NOT NULL
)
SELECT id FROM lane WHERE id IS NOT NULL

-- name: all_lanes
SELECT id, queue, type, labels, thread_demand, group_key, concurrency_key FROM lanes

-- name: insert_lane
INSERT INTO lanes (id, queue, type, labels, thread_demand, group_key, concurrency_key) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: last_seq
SELECT coalesce(max(seq), 0) FROM jobs

-- name: claims_of_session
SELECT {columns} FROM jobs WHERE worker_id = ? AND status = 'running'

-- name: cancels_of_session
SELECT {columns} FROM jobs WHERE worker_id = ? AND status = 'running' AND cancel_requested_at IS NOT NULL

-- name: running_sessions
-- The sessions that hold jobs, by a skip scan of the index of running jobs.
WITH RECURSIVE holder (id) AS (
    SELECT min(worker_id) FROM jobs WHERE status = 'running'
    UNION ALL
    SELECT (SELECT min(worker_id) FROM jobs WHERE status = 'running' AND worker_id > holder.id)
    FROM holder WHERE holder.id IS NOT NULL
)
SELECT id FROM holder WHERE id IS NOT NULL

-- name: upsert_session
INSERT INTO sessions (id, name, threads, types, queues, labels, status, registered_at, last_heartbeat_at, threads_used,
                      endpoint, host, pid)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    name = excluded.name, threads = excluded.threads, types = excluded.types, queues = excluded.queues,
    labels = excluded.labels, last_heartbeat_at = excluded.last_heartbeat_at, endpoint = excluded.endpoint,
    -- An order to drain may not have reached the worker: a new connection does not undo it.
    status = CASE WHEN sessions.status = 'draining' THEN 'draining' ELSE excluded.status END

-- name: session_status
SELECT status FROM sessions WHERE id = ?

-- name: renew_session
UPDATE sessions SET last_heartbeat_at = max(last_heartbeat_at, ?2), threads_used = ?3
WHERE id = ?1 AND status IN ('live', 'draining')
RETURNING status

-- name: set_session_status
UPDATE sessions SET status = ?2 WHERE id = ?1 AND status IN ('live', 'draining')

-- name: silent_sessions
SELECT id FROM sessions WHERE status IN ('live', 'draining') AND last_heartbeat_at < ?

-- name: live_sessions
SELECT id FROM sessions WHERE status IN ('live', 'draining')

-- name: all_sessions
SELECT id, name, threads, types, queues, labels, status, registered_at, last_heartbeat_at, threads_used, endpoint,
       host, pid
FROM sessions ORDER BY name, registered_at

-- name: purge_sessions
DELETE FROM sessions WHERE status IN ('lost', 'gone') AND last_heartbeat_at < ?

-- name: get_key
SELECT digest, job_id FROM idempotency_keys WHERE client = ? AND key = ? AND expires_at > ?

-- name: put_key
INSERT OR REPLACE INTO idempotency_keys (client, key, digest, job_id, expires_at) VALUES (?, ?, ?, ?, ?)

-- name: purge_keys
DELETE FROM idempotency_keys WHERE (client, key) IN (
    SELECT client, key FROM idempotency_keys WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)

-- name: add_count
INSERT INTO counts (queue, type, status, count) VALUES (?, ?, ?, ?)
ON CONFLICT (queue, type, status) DO UPDATE SET count = count + excluded.count

-- name: all_counts
SELECT queue, type, status, count FROM counts WHERE count <> 0

-- name: oldest_due
-- When the first in line became due, by queue. Within a lane and rank jobs stand in the order of their arrival, so only the
-- head of each is read, and each head is found from the one before it.
WITH RECURSIVE heads AS (
    SELECT * FROM (
        SELECT lane_id, rank, seq, run_at FROM jobs INDEXED BY jobs_ready WHERE status = 'queued'
        ORDER BY lane_id, rank, seq LIMIT 1
    ) AS first
    UNION ALL
    SELECT next.lane_id, next.rank, next.seq, next.run_at
    FROM heads JOIN jobs AS next ON next.seq = (
        SELECT seq FROM jobs INDEXED BY jobs_ready WHERE status = 'queued' AND (lane_id, rank) > (heads.lane_id, heads.rank)
        ORDER BY lane_id, rank, seq LIMIT 1
    )
)
SELECT queue, min(run_at) FROM heads JOIN lanes ON lanes.id = heads.lane_id GROUP BY queue

-- name: expired_jobs
SELECT seq, queue, type, status FROM jobs WHERE status = ? AND completed_at IS NOT NULL AND completed_at < ?
ORDER BY completed_at LIMIT ?

-- name: delete_job
DELETE FROM jobs WHERE seq = ?

-- name: delete_attempts
DELETE FROM attempts WHERE seq = ?

-- name: dead_letters
SELECT seq FROM jobs INDEXED BY jobs_dead
WHERE status = 'failed' AND discarded_at IS NULL AND {where} ORDER BY seq LIMIT ?

-- name: list_jobs
SELECT {columns} FROM jobs {index} WHERE {where} ORDER BY seq DESC LIMIT ? OFFSET ?

-- name: count_jobs
SELECT count(*) FROM (SELECT 1 FROM jobs {index} WHERE {where} LIMIT ?)

-- name: get_meta
SELECT value FROM meta WHERE key = ?

-- name: put_meta
INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)
