-- Every statement that the embedded store runs, by name. `{rows}` and `{columns}` are filled in by the code that
-- builds multi-row statements; nothing that a user sent is ever part of a statement's text.

-- name: insert_jobs
INSERT INTO jobs ({columns}) VALUES {rows}

-- name: insert_alike
-- Jobs that are alike: their numbers begin behind ?1 and grow by ?2. For each the array has the time at which it was created, in
-- 16 digits, its id, which has ?4 characters, and its payload. ?5 is when they run, if it is not when each was created.
INSERT INTO jobs (seq, id, payload, created_at, run_at, {columns})
SELECT ?1 + ?2 * rowid, CAST(substr(value, 17, ?4) AS TEXT), substr(value, 17 + ?4), CAST(substr(value, 1, 16) AS INTEGER),
    coalesce(?5, CAST(substr(value, 1, 16) AS INTEGER)), {values} FROM carray(?3)

-- name: insert_alike_named
-- The same for jobs whose ids were made by clients: their digests, of 16 bytes, stand between id and payload.
INSERT INTO jobs (seq, id, digest, payload, created_at, run_at, {columns})
SELECT ?1 + ?2 * rowid, CAST(substr(value, 17, ?4) AS TEXT), substr(value, 17 + ?4, 16), substr(value, 33 + ?4),
    CAST(substr(value, 1, 16) AS INTEGER), coalesce(?5, CAST(substr(value, 1, 16) AS INTEGER)), {values} FROM carray(?3)

-- name: client_ids
-- Ids of clients that name a job, or named one that was pruned; -1 for those. Most are new, and cost a probe of each index.
SELECT spent_ids.id, spent_ids.digest, -1 FROM carray(?1) AS given CROSS JOIN spent_ids ON spent_ids.id = given.value
WHERE spent_ids.expires_at > ?2
UNION ALL
SELECT jobs.id, jobs.digest, jobs.seq FROM carray(?1) AS given CROSS JOIN jobs ON jobs.id = given.value

-- name: spend_ids
-- Before these jobs are deleted: the ids that clients made are remembered until ?1 microseconds after they were stored.
INSERT OR REPLACE INTO spent_ids (id, digest, expires_at)
SELECT id, digest, created_at + ?1 FROM jobs
WHERE seq IN (SELECT value FROM json_each(?3)) AND digest IS NOT NULL AND created_at + ?1 > ?2

-- name: purge_spent_ids
DELETE FROM spent_ids WHERE id IN (SELECT id FROM spent_ids WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)

-- name: claim_candidates
-- The head of one lane, in running order, straight off the partial index: what stands behind the head is never read.
-- `+?` hides the values from the query planner, which would otherwise plan anew for each of them: 23 µs instead of 1.
SELECT {columns} FROM jobs
WHERE lane_id = +? AND status = 'queued'
ORDER BY rank, seq LIMIT +?

-- name: payload_sizes
SELECT seq, length(payload) FROM jobs WHERE seq IN (VALUES {rows})

-- name: large_payloads
SELECT seq, payload FROM jobs WHERE seq IN (VALUES {rows})

-- name: count_ahead
-- Those who will be claimed before a job of the same lane.
SELECT count(*) FROM (
    SELECT 1 FROM jobs INDEXED BY jobs_ready
    WHERE status = 'queued' AND lane_id = ? AND (rank, seq) < (?, ?) LIMIT ?
)

-- name: first_in_lane
SELECT id FROM jobs INDEXED BY jobs_ready WHERE status = 'queued' AND lane_id = ? ORDER BY rank, seq LIMIT 1

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

-- name: ids_beginning
SELECT id FROM jobs INDEXED BY jobs_id WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT ?

-- name: ids_ending
-- Ids begin with the time at which they were made, so that the end of their index are the newest jobs.
SELECT id FROM (SELECT id FROM jobs INDEXED BY jobs_id ORDER BY id DESC LIMIT ?) WHERE id LIKE '%' || ? LIMIT ?

-- name: job_summary
SELECT {columns} FROM jobs WHERE id = ?

-- name: job_states
-- length() of a blob is in the head of its row: nothing large is read.
SELECT id, status, length(payload) + ifnull(length(result), 0) + ifnull(length(error), 0)
FROM jobs WHERE id IN (SELECT value FROM json_each(?))

-- name: end_attempt
-- The end of an attempt that did not complete the job; fenced like complete_jobs.
UPDATE jobs
SET status = ?3, attempt = ?4, crashes = ?5, run_at = ?6, started_at = ?7, completed_at = ?8, worker_id = ?9,
    threads_granted = ?10, claimed_at = ?11, cpu_us = ?12, peak_memory_kb = ?13, error = ?14, fingerprint = ?15, extras = ?16
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
SET status = ?2, attempt = 0, crashes = 0, run_at = ?3, worker_id = NULL, claimed_at = NULL, started_at = NULL,
    completed_at = NULL, cancel_requested_at = NULL, discarded_at = NULL, threads_granted = NULL, cpu_us = NULL,
    peak_memory_kb = NULL, error = NULL, result = NULL, fingerprint = NULL, extras = ?4
WHERE seq = ?1 AND status IN ('failed', 'cancelled')

-- name: hurry_job
UPDATE jobs SET status = 'queued', run_at = ?2 WHERE seq = ?1 AND status = 'scheduled'

-- name: key_holder
SELECT job_id FROM unique_keys WHERE key = ?

-- name: take_key
-- Nothing where another job holds it.
INSERT INTO unique_keys (key, job_id) VALUES (?, ?) ON CONFLICT (key) DO NOTHING

-- name: free_key
DELETE FROM unique_keys WHERE key = ? AND job_id = ?

-- name: key_is_free
-- Of a dead letter: no other job holds its unique key.
(extras IS NULL OR NOT EXISTS (SELECT 1 FROM unique_keys WHERE key = json_extract(extras, '$.unique_key')))

-- name: count_keys_taken
SELECT count(*) FROM (
    SELECT 1 FROM jobs {index} WHERE status = 'failed' AND discarded_at IS NULL AND extras IS NOT NULL AND NOT {free} AND {where}
    LIMIT ?)

-- name: rewrite_job
-- A job that waits, changed by a person or replaced; fenced by the claim number as well, so that a job which was claimed since is
-- left alone.
UPDATE jobs
SET status = ?3, queue = ?4, lane_id = ?5, priority = ?6, rank = ?7, max_attempts = ?8, timeout_sec = ?9, metadata = ?10,
    run_at = ?11, payload = ?12, extras = ?13
WHERE seq = ?1 AND claim_id = ?2 AND status IN ('blocked', 'scheduled', 'queued')

-- name: note_limit
INSERT INTO time_limits (seq, at) VALUES (?, ?) ON CONFLICT (seq) DO UPDATE SET at = excluded.at

-- name: due_limits
SELECT seq FROM time_limits INDEXED BY time_limits_at WHERE at <= ? ORDER BY at, seq LIMIT ?

-- name: drop_limit
DELETE FROM time_limits WHERE seq = ?

-- name: next_limit
SELECT min(at) FROM time_limits

-- name: end_waiting
-- A job that waits and whose time is up.
UPDATE jobs SET status = ?3, completed_at = ?4, error = ?5, fingerprint = ?6
WHERE seq = ?1 AND claim_id = ?2 AND status IN ('blocked', 'scheduled', 'queued')

-- name: discard_job
UPDATE jobs SET discarded_at = ?2 WHERE seq = ?1 AND status = 'failed' AND discarded_at IS NULL

-- name: due_jobs
-- `+?` for the reason that claim_candidates gives.
SELECT seq, lane_id, queue, type FROM jobs
WHERE status = 'scheduled' AND run_at <= +? ORDER BY run_at, seq LIMIT +?

-- name: promote_job
UPDATE jobs SET status = 'queued' WHERE seq = ? AND status = 'scheduled'

-- name: next_due
SELECT min(run_at) FROM jobs WHERE status = 'scheduled'

-- name: far_retries
-- Retries that are further ahead than their own delay, with that delay: the furthest first, so that those which are not are
-- looked at once, at the end.
SELECT jobs.seq, attempts.retry_delay_us
FROM jobs INDEXED BY jobs_retries
CROSS JOIN attempts ON attempts.seq = jobs.seq AND attempts.claim_id = jobs.claim_id
WHERE jobs.status = 'scheduled' AND jobs.claim_id > 0 AND jobs.run_at > ?1
  AND jobs.run_at > ?1 + attempts.retry_delay_us
ORDER BY jobs.run_at DESC LIMIT ?2

-- name: set_run_at
UPDATE jobs SET run_at = ?2 WHERE seq = ?1 AND status = 'scheduled'

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
SELECT id, queue, type, labels, thread_demand, group_key, concurrency_key, on_oversize FROM lanes

-- name: insert_lane
INSERT INTO lanes (id, queue, type, labels, thread_demand, group_key, concurrency_key, on_oversize)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

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
                      endpoint, host, pid, secret_hash)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    name = excluded.name, threads = excluded.threads, types = excluded.types, queues = excluded.queues,
    labels = excluded.labels, last_heartbeat_at = excluded.last_heartbeat_at, endpoint = excluded.endpoint,
    -- An order to drain may not have reached the worker: a new connection does not undo it.
    status = CASE WHEN sessions.status = 'draining' THEN 'draining' ELSE excluded.status END

-- name: session_secret
SELECT secret_hash FROM sessions WHERE id = ?

-- name: session_status
SELECT status FROM sessions WHERE id = ?

-- name: renew_session
UPDATE sessions SET last_heartbeat_at = max(last_heartbeat_at, ?2), threads_used = ?3
WHERE id = ?1 AND status IN ('live', 'draining')
RETURNING status

-- name: correct_heartbeats
UPDATE sessions SET last_heartbeat_at = ?1 WHERE status IN ('live', 'draining') AND last_heartbeat_at > ?1

-- name: set_session_status
UPDATE sessions SET status = ?2 WHERE id = ?1 AND status IN ('live', 'draining')

-- name: silent_sessions
SELECT id FROM sessions WHERE status IN ('live', 'draining') AND last_heartbeat_at < ?

-- name: live_sessions
SELECT id FROM sessions WHERE status IN ('live', 'draining')

-- name: all_sessions
SELECT id, name, threads, types, queues, labels, status, registered_at, last_heartbeat_at, threads_used, endpoint,
       host, pid, secret_hash
FROM sessions ORDER BY name, registered_at

-- name: purge_sessions
DELETE FROM sessions WHERE status IN ('lost', 'gone') AND last_heartbeat_at < ?

-- name: pause_queue
-- A queue that is paused already stays paused since then.
INSERT INTO paused_queues (queue, paused_at) VALUES (?, ?) ON CONFLICT (queue) DO NOTHING

-- name: resume_queue
DELETE FROM paused_queues WHERE queue = ?

-- name: paused_queues
SELECT queue, paused_at FROM paused_queues

-- name: note_type
-- NO_NOTE replaces nothing.
INSERT INTO job_types (type, note) VALUES (?, ?)
ON CONFLICT (type) DO UPDATE SET note = excluded.note WHERE note <> excluded.note AND excluded.note <> x'7b207d'

-- name: noted_types
SELECT type, note FROM job_types

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
-- When the first in line became due, by queue. Within a lane and rank jobs stand in the order of their arrival, so only the head
-- of each pair is read: one probe of the index finds the next lane, and one the next rank of a lane. Each compares one column
-- only, because a comparison of row values, (lane_id, rank) > (?, ?), seeks on the first of them and walks the rest of the lane.
WITH RECURSIVE lane (id) AS (
    SELECT min(lane_id) FROM jobs INDEXED BY jobs_ready WHERE status = 'queued'
    UNION ALL
    SELECT (SELECT min(lane_id) FROM jobs INDEXED BY jobs_ready WHERE status = 'queued' AND lane_id > lane.id)
    FROM lane WHERE lane.id IS NOT NULL
), pair (lane_id, rank) AS (
    SELECT id, (SELECT min(rank) FROM jobs INDEXED BY jobs_ready WHERE status = 'queued' AND lane_id = lane.id)
    FROM lane WHERE id IS NOT NULL
    UNION ALL
    SELECT lane_id, (
        SELECT min(rank) FROM jobs INDEXED BY jobs_ready WHERE status = 'queued' AND lane_id = pair.lane_id AND rank > pair.rank
    )
    FROM pair WHERE rank IS NOT NULL
)
SELECT queue, min(run_at) FROM (
    SELECT lane_id, (
        SELECT run_at FROM jobs INDEXED BY jobs_ready
        WHERE status = 'queued' AND lane_id = pair.lane_id AND rank = pair.rank ORDER BY seq LIMIT 1
    ) AS run_at
    FROM pair WHERE rank IS NOT NULL
) JOIN lanes ON lanes.id = lane_id GROUP BY queue

-- name: expired_jobs
-- Without those that are kept for a time of their own. What was seen before ?4 is of these, and not looked at again.
SELECT seq, queue, type, status, metadata IS NOT NULL FROM jobs
WHERE status = ?1 AND completed_at IS NOT NULL AND completed_at >= ?4 AND completed_at < ?2
  AND NOT EXISTS (SELECT 1 FROM keeps WHERE keeps.seq = jobs.seq)
ORDER BY completed_at LIMIT ?3

-- name: kept_long_enough
SELECT jobs.seq, jobs.queue, jobs.type, jobs.status, jobs.metadata IS NOT NULL
FROM keeps INDEXED BY keeps_at CROSS JOIN jobs ON jobs.seq = keeps.seq
WHERE keeps.at <= ? AND jobs.status IN ('completed', 'failed', 'cancelled')
ORDER BY keeps.at LIMIT ?

-- name: put_keep
INSERT OR REPLACE INTO keeps (seq, at) VALUES (?, ?)

-- name: drop_keep
DELETE FROM keeps WHERE seq = ?

-- name: put_metadata
INSERT OR IGNORE INTO job_metadata (key, value, seq) VALUES (?, ?, ?)

-- name: drop_metadata
DELETE FROM job_metadata WHERE seq = ?

-- name: delete_job
DELETE FROM jobs WHERE seq = ?

-- name: delete_attempts
DELETE FROM attempts WHERE seq = ?

-- name: dead_letters
SELECT seq FROM jobs {index}
WHERE status = 'failed' AND discarded_at IS NULL AND {free} AND {where} ORDER BY seq LIMIT ?

-- name: matching
-- The numbers of jobs that match, off one index, for a bulk operation. Several statuses have several of these.
SELECT seq FROM jobs {index} WHERE {where}

-- name: walk
-- The first jobs of a source of a list, see stoker.store.walks: `key` is what the index is asked for, and the limit is how many are
-- looked at. The order is that of the index, so nothing is sorted but a source that is read whole.
SELECT {columns} FROM jobs {index} WHERE {key} AND seq >= ? AND seq < ? ORDER BY seq {order} LIMIT ?

-- name: walk_matches
-- The numbers alone: what a page skips is never read as a whole row.
SELECT seq FROM ({walk}) WHERE {where} LIMIT ? OFFSET ?

-- name: walked
-- How far a walk went.
SELECT count(*), min(seq) FROM (SELECT seq FROM ({walk}))

-- name: first_and_last
SELECT (SELECT min(seq) FROM jobs), (SELECT max(seq) FROM jobs)

-- name: created_from
SELECT seq, created_at FROM jobs WHERE seq >= ? ORDER BY seq LIMIT 1

-- name: last_completed
-- From the newest job down: once, when a coordinator starts.
SELECT seq FROM jobs NOT INDEXED WHERE status = 'completed' ORDER BY seq DESC LIMIT 1

-- name: matching_lanes
SELECT id FROM lanes
WHERE (? IS NULL OR queue = ?) AND (? IS NULL OR type = ?) AND (? IS NULL OR type IN (SELECT value FROM json_each(?)))
LIMIT ?

-- name: pairs_of_lanes
-- The lanes and ranks in which jobs are queued, of these lanes, given as a JSON array, with the priority that each rank stands for:
-- two probes of the index for each.
WITH RECURSIVE pair (lane_id, rank) AS (
    SELECT value, (SELECT min(rank) FROM jobs INDEXED BY jobs_ready WHERE status = 'queued' AND lane_id = lane.value)
    FROM json_each(?1) AS lane
    UNION ALL
    SELECT lane_id, (
        SELECT min(rank) FROM jobs INDEXED BY jobs_ready WHERE status = 'queued' AND lane_id = pair.lane_id AND rank > pair.rank
    )
    FROM pair WHERE rank IS NOT NULL
)
SELECT lane_id, rank, (
    SELECT priority FROM jobs INDEXED BY jobs_ready
    WHERE status = 'queued' AND lane_id = pair.lane_id AND rank = pair.rank ORDER BY seq LIMIT 1
)
FROM pair WHERE rank IS NOT NULL LIMIT ?2

-- name: pairs_of_priority
-- The same, with one priority, ?3: a rank that may stand for it, of the array ?2, does where the first job there has it.
SELECT lane.value, may.value, ?3 FROM json_each(?1) AS lane CROSS JOIN json_each(?2) AS may
WHERE ?3 = (
    SELECT priority FROM jobs INDEXED BY jobs_ready
    WHERE status = 'queued' AND lane_id = lane.value AND rank = may.value ORDER BY seq LIMIT 1
)

-- name: list_jobs
-- Rows by their numbers, given as a JSON array.
SELECT {columns} FROM jobs WHERE seq IN (SELECT value FROM json_each(?)) ORDER BY seq DESC

-- name: list_sizes
-- How large these jobs are, in the order of list_jobs. length() of a blob is in the head of its row: nothing large is read.
SELECT length(payload) + ifnull(length(result), 0) + ifnull(length(error), 0)
FROM jobs WHERE seq IN (SELECT value FROM json_each(?)) ORDER BY seq DESC

-- name: text_matches
-- Begins an id, or is part of a name.
(id BETWEEN ? AND ? OR name LIKE ? ESCAPE '\')

-- name: ids_between
SELECT seq FROM jobs INDEXED BY jobs_id WHERE id BETWEEN ? AND ?

-- name: names
SELECT seq FROM jobs INDEXED BY jobs_name WHERE name IS NOT NULL

-- name: names_like
SELECT seq FROM jobs INDEXED BY jobs_name WHERE name IS NOT NULL AND name LIKE ? ESCAPE '\'

-- name: of_types
type IN (SELECT value FROM json_each(?))

-- name: failed_like
(status = 'failed' AND fingerprint IN (SELECT value FROM json_each(?)))

-- name: failed_alike
SELECT seq FROM jobs INDEXED BY jobs_fingerprint WHERE status = 'failed' AND fingerprint = ?

-- name: failed_in_ways
SELECT seq FROM jobs INDEXED BY jobs_fingerprint
WHERE status = 'failed' AND fingerprint IN (SELECT value FROM json_each(?))

-- name: failure_samples
-- From one fingerprint to the next along the index: as many steps as there are kinds, however many jobs failed.
WITH RECURSIVE kinds (fingerprint) AS (
    SELECT min(fingerprint) FROM jobs INDEXED BY jobs_fingerprint WHERE status = 'failed' AND fingerprint > ''
    UNION ALL
    SELECT (
        SELECT min(later.fingerprint) FROM jobs AS later INDEXED BY jobs_fingerprint
        WHERE later.status = 'failed' AND later.fingerprint > kinds.fingerprint
    )
    FROM kinds WHERE kinds.fingerprint IS NOT NULL
)
SELECT kinds.fingerprint, sample.type, sample.error
FROM kinds JOIN jobs AS sample ON sample.seq = (
    SELECT one.seq FROM jobs AS one INDEXED BY jobs_fingerprint
    WHERE one.status = 'failed' AND one.fingerprint = kinds.fingerprint LIMIT 1
)
LIMIT ?

-- name: has_metadata
-- `seq` is that of the job: the inner select has no such column. One look at the key of the table.
EXISTS (SELECT 1 FROM (SELECT seq AS of_seq FROM job_metadata WHERE key = ? AND value = ?) WHERE of_seq = seq)

-- name: metadata_entries
SELECT 1 FROM job_metadata WHERE key = ? AND value = ?

-- name: metadata_walk
-- The newest jobs with an entry of metadata, in the order of the key of that table; see `walk`.
SELECT {columns} FROM (
    SELECT seq AS of_seq FROM job_metadata WHERE key = ? AND value = ? AND seq >= ? AND seq < ? ORDER BY seq {order} LIMIT ?
) CROSS JOIN jobs ON jobs.seq = of_seq ORDER BY of_seq {order}

-- name: worker_matches
worker_id IN (SELECT ? UNION ALL SELECT id FROM sessions WHERE name = ?)

-- name: dead_letter_groups
-- Off the index of failed jobs alone. The last two columns are totals over all groups.
SELECT fingerprint, count(*), min(completed_at), max(completed_at), count(*) OVER (), sum(count(*)) OVER ()
FROM jobs INDEXED BY jobs_fingerprint
WHERE status = 'failed' AND discarded_at IS NULL AND fingerprint IS NOT NULL
GROUP BY fingerprint ORDER BY max(completed_at) DESC, fingerprint LIMIT ?

-- name: group_sparks
SELECT (completed_at - ?2) * ?4 / ?3, count(*) FROM jobs INDEXED BY jobs_fingerprint
WHERE status = 'failed' AND fingerprint = ?1 AND discarded_at IS NULL GROUP BY 1

-- name: group_sample
SELECT {columns} FROM jobs INDEXED BY jobs_fingerprint
WHERE status = 'failed' AND fingerprint = ? AND discarded_at IS NULL ORDER BY completed_at DESC, seq DESC LIMIT 1

-- name: put_tally
INSERT OR REPLACE INTO series
    (shard, bucket_sec, at, queue, type, submitted, completed, failed, cancelled, retried, queue_depth_max, wait, run)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: put_gauge
INSERT OR REPLACE INTO series_gauges
    (shard, bucket_sec, at, queue_depth_max, threads_used_max, threads_max, workers_max, autoscaler_wanted)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: tallies
SELECT bucket_sec, at, queue, type, submitted, completed, failed, cancelled, retried, queue_depth_max, wait, run
FROM series WHERE bucket_sec = ?1 AND at >= ?2 AND at < ?3 AND (?4 IS NULL OR queue = ?4) AND (?5 IS NULL OR type = ?5)

-- name: folded_tallies
-- A backlog of many queues and types gives a row of each every ten seconds, though nothing happens but waiting. x'80' is an empty
-- histogram.
SELECT bucket_sec, at, queue, type, submitted, completed, failed, cancelled, retried, queue_depth_max, wait, run
FROM series WHERE bucket_sec = ?1 AND at >= ?2 AND at < ?3 AND (?4 IS NULL OR queue = ?4) AND (?5 IS NULL OR type = ?5)
  AND (submitted + completed + failed + cancelled + retried > 0 OR length(wait) > 1 OR length(run) > 1)
UNION ALL
SELECT bucket_sec, max(at), queue, type, 0, 0, 0, 0, 0, max(queue_depth_max), x'80', x'80'
FROM series WHERE bucket_sec = ?1 AND at >= ?2 AND at < ?3 AND (?4 IS NULL OR queue = ?4) AND (?5 IS NULL OR type = ?5)
  AND NOT (submitted + completed + failed + cancelled + retried > 0 OR length(wait) > 1 OR length(run) > 1)
GROUP BY bucket_sec, queue, type

-- name: gauges
SELECT bucket_sec, at, queue_depth_max, threads_used_max, threads_max, workers_max, autoscaler_wanted
FROM series_gauges WHERE bucket_sec = ?1 AND at >= ?2 AND at < ?3

-- name: purge_series
-- A part at a time, the oldest first: after a long pause there may be much.
DELETE FROM series WHERE bucket_sec = ?1 AND at < min(?2, ?3 + (SELECT min(at) FROM series WHERE bucket_sec = ?1))

-- name: purge_gauges
DELETE FROM series_gauges
WHERE bucket_sec = ?1 AND at < min(?2, ?3 + (SELECT min(at) FROM series_gauges WHERE bucket_sec = ?1))

-- name: put_bulk
INSERT OR REPLACE INTO bulks (id, action, filter, status, total, total_capped, done, changed, created_at, finished_at, cursor)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: get_bulk
SELECT id, action, filter, status, total, total_capped, done, changed, created_at, finished_at, cursor
FROM bulks WHERE id = ?

-- name: latest_bulks
SELECT id, action, filter, status, total, total_capped, done, changed, created_at, finished_at, cursor
FROM bulks ORDER BY created_at DESC, id DESC LIMIT ?

-- name: running_bulks
SELECT id, action, filter, status, total, total_capped, done, changed, created_at, finished_at, cursor
FROM bulks WHERE status = 'running' ORDER BY created_at DESC, id DESC LIMIT ?

-- name: stop_bulk
UPDATE bulks SET status = 'stopped', finished_at = ?2 WHERE id = ?1 AND status = 'running'

-- name: purge_bulks
DELETE FROM bulks WHERE status <> 'running' AND finished_at < ?

-- name: next_matching
-- The next jobs of a bulk operation, oldest first.
SELECT seq, id FROM jobs WHERE seq IN (SELECT seq FROM ({matching}) ORDER BY seq LIMIT ?) ORDER BY seq

-- name: still_matching
-- Those of the given jobs, as a JSON array of their numbers, that match when they are about to be changed.
SELECT {columns} FROM jobs WHERE seq IN (SELECT value FROM json_each(?)) AND {where} ORDER BY seq

-- name: get_meta
SELECT value FROM meta WHERE key = ?

-- name: put_meta
INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)
