-- Statements for moving jobs between databases: see stoker.store.move.

-- name: all_jobs
SELECT {columns} FROM jobs ORDER BY seq

-- name: all_attempts
-- Walked side by side with the jobs, so that neither is ever in memory.
SELECT seq, {columns} FROM attempts ORDER BY seq, claim_id

-- name: live_keys
SELECT k.client, k.key, k.digest, k.job_id, k.expires_at, jobs.queue
FROM idempotency_keys AS k JOIN jobs ON jobs.id = k.job_id
WHERE k.expires_at > ? ORDER BY k.client, k.key

-- name: known_ids
-- Which of these ids, given as a JSON array, are there.
SELECT jobs.id FROM json_each(?) AS wanted CROSS JOIN jobs ON jobs.id = wanted.value

-- name: insert_attempt
INSERT INTO attempts ({columns}) VALUES ({marks})

-- name: put_key
-- A key that is alive keeps its job; one that has expired, or whose job is gone, makes room.
INSERT INTO idempotency_keys (client, key, digest, job_id, expires_at) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (client, key) DO UPDATE SET
    digest = excluded.digest, job_id = excluded.job_id, expires_at = excluded.expires_at
WHERE expires_at <= ?6 OR NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = idempotency_keys.job_id)

-- ── output, in the file beside ──────────────────────────────────────────────────────────────────────────────────────

-- name: all_outputs
SELECT key, job_id, claim_id, attempt, created_at, stored, written, cut, open_line FROM outputs ORDER BY job_id, claim_id

-- name: chunks_of
SELECT raw_bytes, data FROM chunks WHERE output = ? ORDER BY seq

-- name: queue_of
SELECT queue FROM jobs WHERE id = ?

-- name: insert_output
-- Nothing under a claim that is not later than all that is there: positions grow with claims, and followers rely on it.
INSERT INTO outputs (job_id, claim_id, attempt, created_at, stored, written, cut, open_line)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8
WHERE NOT EXISTS (SELECT 1 FROM outputs WHERE job_id = ?1 AND claim_id >= ?2)
RETURNING key

-- name: insert_chunk
INSERT INTO chunks (output, raw_bytes, data) VALUES (?, ?, ?)
