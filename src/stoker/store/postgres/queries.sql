-- Every statement that the shared store runs, by name. `{hot}`, `{final}` and `{where}` are filled in from lists in the code;
-- nothing that a user sent is ever part of a statement's text.
--
-- `jobs` holds what is not over, `history` what is; a job is in one of them, and moves in one statement. Times that judge
-- (leases, due times) are taken from the server's clock: the parameter for it is null in production and set only in tests.
--
-- `status || ''` and `expires_at + 0`: the planner must not recognise what an index on these columns could serve. Such a
-- statement is given the keys of its rows, and then the only good plan is to look them up one by one; the other one reads
-- an index from end to end and searches the given keys for each of its rows (measured: 500 µs a job instead of 15).

-- name: now
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, current_setting('transaction_read_only') = 'on'

-- name: schema_version
SELECT max(version) FROM stoker.migrations

-- name: next_block
SELECT nextval('stoker.seq_blocks')

-- ── lanes ───────────────────────────────────────────────────────────────────────────────────────────────────────────

-- name: lock_lanes
-- Held until the commit, so that lanes become visible in the order of their ids.
SELECT pg_advisory_xact_lock(6010243127)

-- name: lanes_after
SELECT id, queue, type, labels, thread_demand, group_key, concurrency_key, on_oversize FROM stoker.lanes WHERE id > $1 ORDER BY id

-- name: insert_lanes
INSERT INTO stoker.lanes (id, queue, type, labels, thread_demand, group_key, concurrency_key, on_oversize)
SELECT * FROM unnest(
    $1::int[], $2::text[], $3::text[], $4::text[], $5::int[], $6::text[], $7::text[], $8::text[]
)

-- name: active_lanes
-- A skip scan: one probe of the index per lane, however many jobs stand in it.
WITH RECURSIVE lane (id) AS (
    (SELECT lane_id FROM stoker.jobs WHERE status = 'queued' ORDER BY lane_id LIMIT 1)
    UNION ALL
    SELECT (SELECT lane_id FROM stoker.jobs WHERE status = 'queued' AND lane_id > lane.id ORDER BY lane_id LIMIT 1)
    FROM lane WHERE lane.id IS NOT NULL
)
SELECT id FROM lane WHERE id IS NOT NULL

-- ── claim ───────────────────────────────────────────────────────────────────────────────────────────────────────────

-- name: claim_candidates
-- The first jobs of some lanes, straight off the partial index; what another coordinator is claiming right now is stepped over.
-- A large payload stays where it is: its length is known without it.
SELECT head.* FROM unnest($1::int[], $2::int[]) AS wanted (lane_id, room)
CROSS JOIN LATERAL (
    SELECT {hot} FROM stoker.jobs
    WHERE lane_id = wanted.lane_id AND status = 'queued'
    ORDER BY rank, seq LIMIT wanted.room
    FOR UPDATE SKIP LOCKED
) AS head

-- name: first_in_lanes
-- The first job of some lanes, not locked: nothing of them can be claimed here now, but it may come before what can.
SELECT first.* FROM unnest($1::int[]) AS wanted (lane_id)
CROSS JOIN LATERAL (
    SELECT {hot} FROM stoker.jobs
    WHERE lane_id = wanted.lane_id AND status = 'queued'
    ORDER BY rank, seq LIMIT 1
) AS first

-- name: payload_sizes
SELECT seq, octet_length(payload) FROM stoker.jobs WHERE seq = ANY ($1::bigint[])

-- name: large_payloads
SELECT seq, payload FROM stoker.jobs WHERE seq = ANY ($1::bigint[])

-- name: line
-- How many will be claimed before a job of the same lane, and the first of them.
SELECT count(*), (
    SELECT id::text FROM stoker.jobs WHERE status = 'queued' AND lane_id = $1 ORDER BY rank, seq LIMIT 1
)
FROM (
    SELECT FROM stoker.jobs
    WHERE status = 'queued' AND lane_id = $1 AND (rank, seq) < ($2::smallint, $3::bigint)
    ORDER BY rank, seq LIMIT $4
) AS ahead

-- name: claim_jobs
UPDATE stoker.jobs
SET status = 'running', claim_id = claim_id + 1, attempt = attempt + 1, worker_id = v.session_id,
    threads_granted = v.threads, claimed_at = $4, started_at = NULL
FROM unnest($1::bigint[], $2::text[], $3::smallint[]) AS v (seq, session_id, threads)
WHERE jobs.seq = v.seq AND jobs.status || '' = 'queued'

-- name: hold_pauses
-- Sent with the BEGIN of a transaction that claims, and held until its commit. Pausing a queue takes this lock exclusively, so by
-- the time a pause is confirmed no claim is under way that did not see it. What is paused is read by a later statement, whose
-- snapshot is taken when this lock is held.
SELECT pg_advisory_xact_lock_shared(6010243129)

-- name: lock_pauses
SELECT pg_advisory_xact_lock(6010243129)

-- name: paused_queues
SELECT queue, paused_at FROM stoker.paused_queues

-- name: pause_queue
-- A queue that is paused already stays paused since then.
INSERT INTO stoker.paused_queues AS known (queue, paused_at)
VALUES ($1, coalesce($2, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint))
ON CONFLICT (queue) DO UPDATE SET paused_at = known.paused_at
RETURNING paused_at

-- name: resume_queue
DELETE FROM stoker.paused_queues WHERE queue = $1

-- name: note_types
-- All transactions write in the same order; what is known already is not written again, and NO_NOTE replaces nothing.
INSERT INTO stoker.job_types AS known (type, note)
SELECT * FROM unnest($1::text[], $2::bytea[]) AS v (type, note) ORDER BY type
ON CONFLICT (type) DO UPDATE SET note = excluded.note
WHERE known.note <> excluded.note AND excluded.note <> '\x7b207d'::bytea

-- name: noted_types
SELECT type, note FROM stoker.job_types

-- ── the end of an attempt ───────────────────────────────────────────────────────────────────────────────────────────

-- name: complete_jobs
-- The fence: the claim number and the status that the write may leave. What was completed moves to the history.
WITH {ordered}done AS (
    DELETE FROM stoker.jobs
    USING {locked}{reports} AS v (seq, claim_id, started_at, completed_at, cpu_us, peak_memory_kb, result)
    WHERE {named}jobs.seq = v.seq AND jobs.claim_id = v.claim_id AND jobs.status || '' = 'running'
    RETURNING jobs.seq, jobs.created_at, jobs.run_at, jobs.claimed_at,
        coalesce(v.started_at, jobs.started_at, jobs.claimed_at) AS started_at, v.completed_at, jobs.cancel_requested_at,
        jobs.timeout_sec, v.cpu_us, v.peak_memory_kb, jobs.lane_id, jobs.claim_id, jobs.memory_mb, jobs.pending_deps,
        jobs.priority, jobs.rank, jobs.attempt, jobs.max_attempts, jobs.crashes, jobs.threads_granted, jobs.id,
        jobs.on_oversize, jobs.worker_id, jobs.name, jobs.metadata, jobs.payload, v.result,
        jobs.digest, jobs.extras
), kept AS (
    INSERT INTO stoker.history (seq, created_at, run_at, claimed_at, started_at, completed_at, cancel_requested_at,
        timeout_sec, cpu_us, peak_memory_kb, lane_id, claim_id, memory_mb, pending_deps, priority, rank, attempt, max_attempts,
        crashes, threads_granted, id, on_oversize, worker_id, name, metadata, payload, result, digest, extras, status)
    SELECT done.*, 'completed' FROM done
){counted}
SELECT array_agg(seq), array_agg(claim_id) FROM done

-- name: count_completed
-- What `complete_jobs` counts where it is the whole transaction: by lanes, which are few, and in the order of all transactions.
, ended AS (
    SELECT lane_id, count(*) AS jobs FROM done GROUP BY lane_id
), counted AS (
    INSERT INTO stoker.counts (shard, queue, type, status, count)
    SELECT $1, lane.queue, lane.type, change.status, sum(change.sign * ended.jobs)::bigint
    FROM ended
    CROSS JOIN LATERAL (SELECT queue, type FROM stoker.lanes WHERE lanes.id = ended.lane_id OFFSET 0) AS lane
    CROSS JOIN (VALUES ('completed', 1), ('running', -1)) AS change (status, sign)
    GROUP BY lane.queue, lane.type, change.status
    ORDER BY lane.queue COLLATE "C", lane.type COLLATE "C", change.status
    ON CONFLICT (shard, queue, type, status) DO UPDATE SET count = counts.count + excluded.count
)

-- name: jobs_by_seq
-- In the order of their numbers, so that two coordinators that want the same rows wait and do not block each other.
SELECT {hot} FROM stoker.jobs WHERE seq = ANY($1::bigint[]) ORDER BY seq FOR UPDATE

-- name: jobs_by_id
SELECT {hot} FROM stoker.jobs WHERE id = ANY($1::uuid[]) ORDER BY seq FOR UPDATE

-- name: lock_jobs
WITH unfinished AS (
    SELECT seq FROM stoker.jobs
    WHERE seq = ANY($1::bigint[]) OR id = ANY($2::uuid[]) OR (worker_id = ANY($3::text[]) AND status = 'running')
    ORDER BY seq FOR UPDATE
), finished AS (
    SELECT seq FROM stoker.history WHERE seq = ANY($4::bigint[]) OR id = ANY($2::uuid[]) ORDER BY seq FOR UPDATE
)
SELECT FROM unfinished UNION ALL SELECT FROM finished

-- name: history_by_seq
SELECT {final} FROM stoker.history WHERE seq = ANY($1::bigint[]) ORDER BY seq FOR UPDATE

-- name: history_by_id
SELECT {final} FROM stoker.history WHERE id = ANY($1::uuid[]) ORDER BY seq FOR UPDATE

-- name: requeue_jobs
-- Attempts that ended without ending their job. The rows are locked and were judged by the caller; the fence stands all the same.
UPDATE stoker.jobs
SET status = v.status, attempt = v.attempt, crashes = v.crashes, run_at = v.run_at, error = v.error, extras = v.extras,
    started_at = NULL, worker_id = NULL, threads_granted = NULL, claimed_at = NULL
FROM unnest($1::bigint[], $2::int[], $3::text[], $4::smallint[], $5::smallint[], $6::bigint[], $7::bytea[], $8::text[])
    AS v (seq, claim_id, status, attempt, crashes, run_at, error, extras)
WHERE jobs.seq = v.seq AND jobs.claim_id = v.claim_id AND jobs.status || '' = 'running'

-- name: carry_to_history
-- Payloads that were left in the store while their jobs moved from one table to the other.
UPDATE stoker.history SET payload = jobs.payload FROM stoker.jobs
WHERE history.seq = ANY($1::bigint[]) AND jobs.seq = history.seq

-- name: carry_to_jobs
UPDATE stoker.jobs SET payload = history.payload FROM stoker.history
WHERE jobs.seq = ANY($1::bigint[]) AND history.seq = jobs.seq

-- name: delete_jobs
DELETE FROM stoker.jobs USING unnest($1::bigint[], $2::int[]) AS v (seq, claim_id)
WHERE jobs.seq = v.seq AND jobs.claim_id = v.claim_id

-- name: delete_history
DELETE FROM stoker.history USING unnest($1::bigint[]) AS v (seq) WHERE history.seq = v.seq

-- name: insert_attempts
INSERT INTO stoker.attempts
    (seq, claim_id, attempt, worker_id, claimed_at, started_at, finished_at, kind, charged, error, retry_delay_us,
     cpu_us, peak_memory_kb, status)
SELECT * FROM unnest($1::bigint[], $2::int[], $3::smallint[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[],
                     $8::text[], $9::bool[], $10::bytea[], $11::bigint[], $12::bigint[], $13::bigint[], $14::text[])
ON CONFLICT (seq, claim_id) DO NOTHING

-- name: attempt_ends
-- How attempts ended and the status that their jobs got by it, for reports that are sent twice.
SELECT attempts.seq, attempts.claim_id, attempts.kind, attempts.status
FROM unnest($1::bigint[], $2::int[]) AS v (seq, claim_id)
CROSS JOIN LATERAL (
    SELECT * FROM stoker.attempts WHERE attempts.seq = v.seq AND attempts.claim_id = v.claim_id
) AS attempts

-- name: attempts_of
SELECT claim_id, attempt, worker_id, claimed_at, started_at, finished_at, kind, charged, error, retry_delay_us,
       cpu_us, peak_memory_kb
FROM stoker.attempts WHERE seq = $1 ORDER BY claim_id

-- name: attempts_of_jobs
-- The same for many jobs, with the number of each in front.
SELECT seq, claim_id, attempt, worker_id, claimed_at, started_at, finished_at, kind, charged, error, retry_delay_us,
       cpu_us, peak_memory_kb
FROM stoker.attempts WHERE seq = ANY($1::bigint[]) ORDER BY seq, claim_id

-- name: start_jobs
UPDATE stoker.jobs SET started_at = v.started_at
FROM unnest($1::bigint[], $2::int[], $3::bigint[]) AS v (seq, claim_id, started_at)
WHERE jobs.seq = v.seq AND jobs.claim_id = v.claim_id AND jobs.status || '' = 'running' AND jobs.started_at IS NULL

-- ── waiting jobs ────────────────────────────────────────────────────────────────────────────────────────────────────

-- name: request_cancels
UPDATE stoker.jobs SET cancel_requested_at = $2
FROM unnest($1::bigint[]) AS v (seq)
WHERE jobs.seq = v.seq AND jobs.status || '' = 'running' AND jobs.cancel_requested_at IS NULL

-- name: hurry_jobs
UPDATE stoker.jobs SET status = 'queued', run_at = $2
FROM unnest($1::bigint[]) AS v (seq)
WHERE jobs.seq = v.seq AND jobs.status || '' = 'scheduled'

-- name: discard_jobs
UPDATE stoker.history SET discarded_at = $2
FROM unnest($1::bigint[]) AS v (seq)
WHERE history.seq = v.seq AND history.status || '' = 'failed' AND history.discarded_at IS NULL
RETURNING history.seq

-- name: promote_jobs
WITH due AS (
    SELECT seq FROM stoker.jobs
    WHERE status = 'scheduled' AND run_at <= coalesce($2, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    ORDER BY run_at, seq LIMIT $1
    FOR UPDATE SKIP LOCKED
)
UPDATE stoker.jobs SET status = 'queued' FROM due WHERE jobs.seq = due.seq
RETURNING jobs.lane_id

-- name: next_due
SELECT run_at FROM stoker.jobs WHERE status = 'scheduled' ORDER BY run_at LIMIT 1

-- name: correct_retries
-- Retries that are further ahead than their own delay, the furthest first, so that those which are not are looked at once, at
-- the end.
WITH now AS (
    SELECT coalesce($2, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS us
), far AS (
    SELECT jobs.seq, (SELECT us FROM now) + attempts.retry_delay_us AS run_at
    FROM stoker.jobs JOIN stoker.attempts ON attempts.seq = jobs.seq AND attempts.claim_id = jobs.claim_id
    WHERE jobs.status = 'scheduled' AND jobs.claim_id > 0 AND jobs.run_at > (SELECT us FROM now)
      AND jobs.run_at > (SELECT us FROM now) + attempts.retry_delay_us
    ORDER BY jobs.run_at DESC LIMIT $1
    FOR UPDATE OF jobs SKIP LOCKED
)
UPDATE stoker.jobs SET run_at = far.run_at FROM far WHERE jobs.seq = far.seq
RETURNING jobs.seq

-- name: dead_letters
SELECT seq FROM stoker.history
WHERE status = 'failed' AND discarded_at IS NULL AND {free} {where}
ORDER BY seq LIMIT $1
FOR UPDATE SKIP LOCKED

-- ── sessions and leases ─────────────────────────────────────────────────────────────────────────────────────────────

-- name: session_secret
SELECT secret_hash FROM stoker.sessions WHERE id = $1

-- name: open_session
-- A session that was given up or said goodbye does not come back, and an order to drain is not undone by a new connection.
INSERT INTO stoker.sessions AS known (id, name, threads, types, queues, labels, status, threads_used, endpoint, host, pid,
                                      secret_hash, registered_at, last_heartbeat_at)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $13, now.us, now.us
FROM (SELECT coalesce($12, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS us) AS now
ON CONFLICT (id) DO UPDATE SET
    name = excluded.name, threads = excluded.threads, types = excluded.types, queues = excluded.queues,
    labels = excluded.labels, last_heartbeat_at = greatest(known.last_heartbeat_at, excluded.last_heartbeat_at),
    endpoint = excluded.endpoint,
    status = CASE WHEN known.status = 'draining' THEN 'draining' ELSE excluded.status END
WHERE known.status IN ('live', 'draining') AND (known.secret_hash IS NULL OR known.secret_hash = excluded.secret_hash)
RETURNING status

-- name: renew_sessions
UPDATE stoker.sessions
SET last_heartbeat_at = greatest(last_heartbeat_at, now.us), threads_used = v.threads_used
FROM unnest($1::text[], $2::int[]) AS v (id, threads_used),
     (SELECT coalesce($3, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS us) AS now
WHERE sessions.id = v.id AND sessions.status IN ('live', 'draining')
RETURNING sessions.id, sessions.status

-- name: correct_heartbeats
-- One that another transaction has locked is corrected the next time: jobs may be locked here, and sessions come before jobs.
WITH ahead AS (
    SELECT id, now.us FROM stoker.sessions,
        (SELECT coalesce($1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS us) AS now
    WHERE status IN ('live', 'draining') AND last_heartbeat_at > now.us
    FOR UPDATE OF sessions SKIP LOCKED
)
UPDATE stoker.sessions SET last_heartbeat_at = ahead.us FROM ahead WHERE sessions.id = ahead.id

-- name: set_session_status
UPDATE stoker.sessions SET status = $2 WHERE id = $1 AND status IN ('live', 'draining') RETURNING id

-- name: lock_openings
-- Before sessions that may not be there yet, and so cannot be locked, are opened beside others.
SELECT pg_advisory_xact_lock(6010243126)

-- name: lock_sessions
SELECT FROM stoker.sessions
WHERE id = ANY($1::text[]) OR (status IN ('live', 'draining') AND last_heartbeat_at < $2)
ORDER BY id COLLATE "C" FOR UPDATE

-- name: lose_sessions
UPDATE stoker.sessions SET status = 'lost'
FROM (
    SELECT id FROM stoker.sessions WHERE status IN ('live', 'draining') AND last_heartbeat_at < $1
    ORDER BY id COLLATE "C" FOR UPDATE
) AS silent
WHERE sessions.id = silent.id
RETURNING sessions.id

-- name: orphans
-- The sessions that hold jobs and are not alive, by a skip scan of the index of running jobs.
WITH RECURSIVE holder (id) AS (
    (SELECT worker_id FROM stoker.jobs WHERE status = 'running' ORDER BY worker_id LIMIT 1)
    UNION ALL
    SELECT (SELECT worker_id FROM stoker.jobs WHERE status = 'running' AND worker_id > holder.id ORDER BY worker_id LIMIT 1)
    FROM holder WHERE holder.id IS NOT NULL
)
SELECT holder.id FROM holder
WHERE holder.id IS NOT NULL
  AND NOT EXISTS (SELECT FROM stoker.sessions WHERE sessions.id = holder.id AND status IN ('live', 'draining'))

-- name: claims_of_session
SELECT {hot} FROM stoker.jobs WHERE worker_id = $1 AND status = 'running'

-- name: lost_claims
SELECT {hot} FROM stoker.jobs WHERE worker_id = ANY($1::text[]) AND status = 'running' ORDER BY seq FOR UPDATE

-- name: cancels
-- Running jobs of these sessions that are to be cancelled.
SELECT {hot} FROM stoker.jobs
WHERE worker_id = ANY($1::text[]) AND status = 'running' AND cancel_requested_at IS NOT NULL

-- name: all_sessions
SELECT id, name, threads, types, queues, labels, status, registered_at, last_heartbeat_at, threads_used, endpoint,
       host, pid, secret_hash
FROM stoker.sessions ORDER BY name, registered_at

-- name: purge_sessions
DELETE FROM stoker.sessions WHERE id IN (
    SELECT id FROM stoker.sessions WHERE status IN ('lost', 'gone') AND last_heartbeat_at < $1
    FOR UPDATE SKIP LOCKED)

-- ── unique keys ─────────────────────────────────────────────────────────────────────────────────────────────────────

-- name: take_unique_keys
-- In one order for all coordinators, so that two batches wait for each other and never in a circle. A key that another job holds
-- is not returned; one that is being taken or given up right now is waited for.
INSERT INTO stoker.unique_keys (key, job_id)
SELECT * FROM unnest($1::text[], $2::uuid[]) AS v (key, job_id) ORDER BY key COLLATE "C"
ON CONFLICT (key) DO NOTHING
RETURNING key

-- name: key_holders
SELECT key, job_id::text FROM stoker.unique_keys WHERE key = ANY($1::text[])

-- name: free_unique_keys
-- Each if this job holds it. The caller has locked the job, so no other transaction touches the row.
DELETE FROM stoker.unique_keys AS k USING unnest($1::text[], $2::uuid[]) AS v (key, job_id)
WHERE k.key = v.key AND k.job_id = v.job_id

-- name: assign_unique_keys
-- Keys that this transaction took in the name of one job and that another job of it has.
UPDATE stoker.unique_keys AS k SET job_id = v.job_id FROM unnest($1::text[], $2::uuid[]) AS v (key, job_id)
WHERE k.key = v.key

-- name: key_is_free
-- Of a dead letter: no other job holds its unique key.
(extras IS NULL OR NOT EXISTS (
    SELECT FROM stoker.unique_keys AS k WHERE k.key = extras::jsonb ->> 'unique_key' AND k.job_id <> history.id))

-- name: count_keys_taken
SELECT count(*) FROM (
    SELECT FROM stoker.history
    WHERE status = 'failed' AND discarded_at IS NULL AND extras IS NOT NULL AND NOT {free} AND {where} LIMIT $1
) AS found

-- name: rewrite_jobs
-- Jobs that wait, changed by a person or replaced; fenced by the claim number as well, so that a job which was claimed since is
-- left alone.
UPDATE stoker.jobs
SET status = v.status, lane_id = v.lane_id, priority = v.priority, rank = v.rank, max_attempts = v.max_attempts,
    timeout_sec = v.timeout_sec, metadata = v.metadata, run_at = v.run_at, payload = v.payload, extras = v.extras
FROM unnest($1::bigint[], $2::int[], $3::text[], $4::int[], $5::smallint[], $6::smallint[], $7::smallint[],
            $8::double precision[], $9::text[], $10::bigint[], $11::bytea[], $12::text[])
    AS v (seq, claim_id, status, lane_id, priority, rank, max_attempts, timeout_sec, metadata, run_at, payload, extras)
WHERE jobs.seq = v.seq AND jobs.claim_id = v.claim_id AND jobs.status || '' IN ('blocked', 'scheduled', 'queued')

-- ── expiry and deadline ─────────────────────────────────────────────────────────────────────────────────────────────

-- name: note_limits
INSERT INTO stoker.time_limits AS known (seq, at)
SELECT * FROM unnest($1::bigint[], $2::bigint[]) AS v (seq, at) ORDER BY seq
ON CONFLICT (seq) DO UPDATE SET at = excluded.at

-- name: due_limits
SELECT seq, at FROM stoker.time_limits WHERE at <= $1 ORDER BY at, seq LIMIT $2

-- name: late_jobs
-- Jobs to be looked at because their time may be up; what another transaction has locked is left for the next look.
SELECT {hot} FROM stoker.jobs WHERE seq = ANY($1::bigint[]) ORDER BY seq FOR UPDATE SKIP LOCKED

-- name: drop_limits
-- Rows of jobs that were looked at, which are locked, and of jobs that are gone; unless they were noted again meanwhile.
WITH dropped AS (
    SELECT k.seq FROM unnest($1::bigint[], $2::bigint[]) AS v (seq, at)
    JOIN stoker.time_limits AS k ON k.seq = v.seq AND k.at = v.at
    WHERE k.seq = ANY($3::bigint[]) OR NOT EXISTS (SELECT FROM stoker.jobs WHERE jobs.seq = k.seq)
    FOR UPDATE OF k SKIP LOCKED
)
DELETE FROM stoker.time_limits AS k USING dropped WHERE k.seq = dropped.seq

-- name: next_limit
SELECT at FROM stoker.time_limits ORDER BY at LIMIT 1

-- ── idempotency keys ────────────────────────────────────────────────────────────────────────────────────────────────

-- name: get_keys
SELECT known.client, known.key, known.digest, known.job_id::text
FROM unnest($1::text[], $2::text[]) AS v (client, key)
CROSS JOIN LATERAL (
    SELECT * FROM stoker.idempotency_keys AS k WHERE k.client = v.client AND k.key = v.key AND k.expires_at + 0 > $3
) AS known

-- name: drop_keys
-- Keys that have expired, or whose job is gone, make room for new ones.
DELETE FROM stoker.idempotency_keys AS k USING unnest($1::text[], $2::text[]) AS v (client, key)
WHERE k.client = v.client AND k.key = v.key
  AND (k.expires_at + 0 <= $3
       OR NOT EXISTS (SELECT FROM stoker.jobs WHERE jobs.id = k.job_id)
          AND NOT EXISTS (SELECT FROM stoker.history WHERE history.id = k.job_id))

-- name: put_keys
-- One order for all coordinators; a key that another transaction put in the meantime is not returned.
INSERT INTO stoker.idempotency_keys (client, key, digest, job_id, expires_at)
SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::uuid[], $5::bigint[]) AS v (client, key, digest, job_id, expires_at)
ORDER BY client, key
ON CONFLICT (client, key) DO NOTHING
RETURNING client, key

-- name: purge_keys
DELETE FROM stoker.idempotency_keys WHERE (client, key) IN (
    SELECT client, key FROM stoker.idempotency_keys WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2
    FOR UPDATE SKIP LOCKED)

-- ── ids made by clients ─────────────────────────────────────────────────────────────────────────────────────────────

-- name: client_ids
-- Those that name a job, or named one that was pruned. Both tables in one snapshot: a job that moves between them is seen.
SELECT jobs.id::text, jobs.digest, false FROM unnest($1::uuid[]) AS v (id) JOIN stoker.jobs ON jobs.id = v.id
UNION ALL
SELECT history.id::text, history.digest, false FROM unnest($1::uuid[]) AS v (id) JOIN stoker.history ON history.id = v.id
UNION ALL
SELECT spent_ids.id::text, spent_ids.digest, true
FROM unnest($1::uuid[]) AS v (id) JOIN stoker.spent_ids ON spent_ids.id = v.id WHERE spent_ids.expires_at + 0 > $2

-- name: prune_history
-- The ids that clients made are remembered until $2 microseconds after they were stored.
WITH gone AS (
    DELETE FROM stoker.history USING unnest($1::bigint[]) AS v (seq) WHERE history.seq = v.seq
    RETURNING history.id, history.digest, history.created_at
)
INSERT INTO stoker.spent_ids (id, digest, expires_at)
SELECT id, digest, created_at + $2 FROM gone WHERE digest IS NOT NULL AND created_at + $2 > $3
ON CONFLICT (id) DO UPDATE SET digest = excluded.digest, expires_at = excluded.expires_at

-- name: purge_spent_ids
DELETE FROM stoker.spent_ids WHERE id IN (
    SELECT id FROM stoker.spent_ids WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2
    FOR UPDATE SKIP LOCKED)

-- ── totals and retention ────────────────────────────────────────────────────────────────────────────────────────────

-- name: insert_alone
-- The whole transaction of new jobs, in one exchange with the server: their rows, their counts, and a look with a snapshot of its
-- own, after all rows are written, at what would have to undo them (see `check_inserted` in migration 13). `{inserted}` are the
-- rows of a few jobs, or batches.
WITH {inserted}, added AS (
    INSERT INTO stoker.counts (shard, queue, type, status, count)
    SELECT $1, * FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[]) AS v (queue, type, status, count)
    ON CONFLICT (shard, queue, type, status) DO UPDATE SET count = counts.count + excluded.count
)
SELECT count(*), stoker.check_inserted($6, $7, $8) FROM inserted

-- name: insert_batch
-- Jobs that are alike: what is their own in columns, and once what they share. `{run_at}` is when they run, if it is not when each
-- was created; the column of digests is empty for jobs that got their ids from the server.
INSERT INTO stoker.jobs (seq, id, payload, created_at, digest, run_at, {shared})
SELECT v.*, coalesce({run_at}::bigint, v.created_at), {values}
FROM unnest({columns}) AS v (seq, id, payload, created_at, digest)
RETURNING seq

-- name: add_counts
INSERT INTO stoker.counts (shard, queue, type, status, count)
SELECT $1, * FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[]) AS v (queue, type, status, count)
ON CONFLICT (shard, queue, type, status) DO UPDATE SET count = counts.count + excluded.count

-- name: add_counts_of_named
-- The same after jobs were written whose ids clients made, $6; whether one of these ids belongs to a job that is over. From the
-- moment at which the rows were written, others that bring the same id wait for the unique index, and those that brought it
-- before have committed: no job gets past this look, not even one that came, ran and moved on since the ids were looked up.
WITH added AS (
    INSERT INTO stoker.counts (shard, queue, type, status, count)
    SELECT $1, * FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[]) AS v (queue, type, status, count)
    ON CONFLICT (shard, queue, type, status) DO UPDATE SET count = counts.count + excluded.count
)
SELECT EXISTS (SELECT FROM unnest($6::uuid[]) AS v (id) JOIN stoker.history ON history.id = v.id)
    OR EXISTS (
        SELECT FROM unnest($6::uuid[]) AS v (id) JOIN stoker.spent_ids ON spent_ids.id = v.id
        WHERE spent_ids.expires_at + 0 > $7)

-- name: all_counts
SELECT queue, type, status, sum(count)::bigint FROM stoker.counts GROUP BY queue, type, status HAVING sum(count) <> 0

-- name: oldest_due
-- When the first in line became due, by queue. Within a lane and rank jobs stand in the order of their arrival, so only the head
-- of each pair is read: one probe of the index finds the next lane, and one the head of the next rank of a lane.
WITH RECURSIVE lane (id) AS (
    (SELECT lane_id FROM stoker.jobs WHERE status = 'queued' ORDER BY lane_id LIMIT 1)
    UNION ALL
    SELECT (SELECT lane_id FROM stoker.jobs WHERE status = 'queued' AND lane_id > lane.id ORDER BY lane_id LIMIT 1)
    FROM lane WHERE lane.id IS NOT NULL
), head (lane_id, rank, run_at) AS (
    SELECT lane.id, first.rank, first.run_at FROM lane CROSS JOIN LATERAL (
        SELECT rank, run_at FROM stoker.jobs WHERE status = 'queued' AND lane_id = lane.id ORDER BY rank, seq LIMIT 1
    ) AS first
    UNION ALL
    SELECT head.lane_id, first.rank, first.run_at FROM head CROSS JOIN LATERAL (
        SELECT jobs.rank, jobs.run_at FROM stoker.jobs
        WHERE status = 'queued' AND jobs.lane_id = head.lane_id AND jobs.rank > head.rank ORDER BY jobs.rank, jobs.seq LIMIT 1
    ) AS first
)
SELECT queue, min(run_at) FROM head JOIN stoker.lanes AS lanes ON lanes.id = head.lane_id GROUP BY queue

-- name: expired_jobs
-- Without those that are kept for a time of their own. What was seen before $4 is of these, and not looked at again.
SELECT seq, lane_id, status, metadata IS NOT NULL FROM stoker.history
WHERE status = $1 AND completed_at >= $4 AND completed_at < $2
  AND NOT EXISTS (SELECT FROM stoker.keeps WHERE keeps.seq = history.seq)
ORDER BY completed_at LIMIT $3
FOR UPDATE SKIP LOCKED

-- name: kept_long_enough
SELECT history.seq, history.lane_id, history.status, history.metadata IS NOT NULL
FROM (SELECT seq, at FROM stoker.keeps WHERE at <= $1 ORDER BY at, seq LIMIT $2) AS due
CROSS JOIN LATERAL (
    SELECT seq, lane_id, status, metadata FROM stoker.history WHERE history.seq = due.seq FOR UPDATE SKIP LOCKED
) AS history

-- name: put_keeps
INSERT INTO stoker.keeps (seq, at) SELECT * FROM unnest($1::bigint[], $2::bigint[])
ON CONFLICT (seq) DO UPDATE SET at = excluded.at

-- name: drop_keeps
DELETE FROM stoker.keeps USING unnest($1::bigint[]) AS v (seq) WHERE keeps.seq = v.seq

-- name: put_metadata
INSERT INTO stoker.job_metadata (key, value, seq) SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[])
ON CONFLICT DO NOTHING

-- name: drop_metadata
DELETE FROM stoker.job_metadata USING unnest($1::bigint[]) AS v (seq) WHERE job_metadata.seq = v.seq

-- name: delete_attempts
DELETE FROM stoker.attempts USING unnest($1::bigint[]) AS v (seq) WHERE attempts.seq = v.seq

-- ── reads ───────────────────────────────────────────────────────────────────────────────────────────────────────────

-- name: get_jobs
-- Both tables in one statement, and so in one snapshot: a job that moves between them is seen once.
SELECT {hot} FROM stoker.jobs WHERE id = ANY($1::uuid[])
UNION ALL
SELECT {final} FROM stoker.history WHERE id = ANY($1::uuid[])

-- name: ids_beginning
(SELECT id::text FROM stoker.jobs WHERE id BETWEEN $1::uuid AND $2::uuid ORDER BY stoker.jobs.id DESC LIMIT $3)
UNION ALL
(SELECT id::text FROM stoker.history WHERE id BETWEEN $1::uuid AND $2::uuid ORDER BY stoker.history.id DESC LIMIT $3)

-- name: ids_ending
-- Ids begin with the time at which they were made, so that the end of their indexes are the newest jobs.
SELECT id::text FROM (
    (SELECT id FROM stoker.jobs ORDER BY id DESC LIMIT $1)
    UNION ALL
    (SELECT id FROM stoker.history ORDER BY id DESC LIMIT $1)
    ORDER BY id DESC LIMIT $1
) AS newest
WHERE id::text LIKE '%' || $2 LIMIT $3

-- name: job_summaries
-- As `get_jobs`, without what may be large.
SELECT id::text, name, priority, lane_id, status, claim_id, attempt, worker_id, created_at, started_at, NULL::bigint
FROM stoker.jobs WHERE id = ANY($1::uuid[])
UNION ALL
SELECT id::text, name, priority, lane_id, status, claim_id, attempt, worker_id, created_at, started_at, completed_at
FROM stoker.history WHERE id = ANY($1::uuid[])

-- name: job_states
-- Whether jobs have ended, and how many bytes there are to read: lengths are known without reading what is large.
SELECT id::text, status, octet_length(payload) + coalesce(octet_length(error), 0)
FROM stoker.jobs WHERE id = ANY($1::uuid[])
UNION ALL
SELECT id::text, status, octet_length(payload) + coalesce(octet_length(result), 0) + coalesce(octet_length(error), 0)
FROM stoker.history WHERE id = ANY($1::uuid[])

-- name: known_ids
SELECT id::text FROM stoker.jobs WHERE id = ANY($1::uuid[])
UNION ALL
SELECT id::text FROM stoker.history WHERE id = ANY($1::uuid[])

-- name: list_jobs
-- Rows by their numbers.
SELECT {hot} FROM stoker.jobs WHERE seq = ANY($1::bigint[])
UNION ALL
SELECT {final} FROM stoker.history WHERE seq = ANY($1::bigint[])
ORDER BY seq DESC

-- name: list_sizes
-- How large these jobs are, in the order of list_jobs: lengths are known without reading what is large.
SELECT seq, octet_length(payload) + coalesce(octet_length(error), 0) AS bytes
FROM stoker.jobs WHERE seq = ANY($1::bigint[])
UNION ALL
SELECT seq, octet_length(payload) + coalesce(octet_length(result), 0) + coalesce(octet_length(error), 0)
FROM stoker.history WHERE seq = ANY($1::bigint[])
ORDER BY seq DESC

-- name: walk
-- The first jobs of a source of a list, see stoker.store.walks: `key` is what the index is asked for, and the limit is how many are
-- looked at. The order is that of the index, so nothing is sorted but a source that is read whole.
SELECT * FROM stoker.{table} WHERE {key} AND seq >= ? AND seq < ? ORDER BY seq {order} LIMIT ?

-- name: walk_matches
SELECT seq FROM ({walk}) AS walk WHERE {where} LIMIT ?

-- name: walked
-- How far a walk went.
SELECT count(*), min(seq) FROM (SELECT seq FROM ({walk}) AS walk) AS seqs

-- name: walk_step
-- How far a walk went, and what it found on its way.
SELECT count(*), min(seq), array_agg(seq) FILTER (WHERE {where}) FROM ({walk}) AS walk

-- name: newest_of_pairs
-- The next few jobs of each of these lanes and ranks, before the number that it has reached.
SELECT pair.place, part.seq FROM unnest($1::int[], $2::int[], $3::smallint[], $4::bigint[]) AS pair (place, lane_id, rank, below)
CROSS JOIN LATERAL (
    SELECT seq FROM stoker.jobs
    WHERE status = 'queued' AND lane_id = pair.lane_id AND rank = pair.rank AND seq >= $5 AND seq < pair.below
    ORDER BY seq DESC LIMIT $6
) AS part

-- name: length_of_pairs
SELECT count(*) FROM (
    SELECT FROM unnest($1::int[], $2::smallint[]) AS pair (lane_id, rank)
    CROSS JOIN LATERAL (
        SELECT FROM stoker.jobs
        WHERE status = 'queued' AND lane_id = pair.lane_id AND rank = pair.rank AND seq >= $3 AND seq < $4 LIMIT $5
    ) AS part LIMIT $5
) AS found

-- name: numbers_at
SELECT seq FROM stoker.{table} WHERE seq >= ? AND seq < ? ORDER BY seq {order} LIMIT ? OFFSET ?

-- name: sort_in_memory
-- Before `skipped`, which sorts some hundred thousand numbers.
SET LOCAL work_mem = '32MB'

-- name: over_pairs
-- A walk in each of these lanes and ranks.
SELECT part.seq FROM unnest(?::int[], ?::smallint[]) AS pair (lane_id, rank) CROSS JOIN LATERAL ({each}) AS part
ORDER BY seq {order} LIMIT ?

-- name: skipped
SELECT seq FROM ({parts}) AS parts ORDER BY seq {order} LIMIT ? OFFSET ?

-- name: first_and_last
SELECT (SELECT seq FROM stoker.{table} ORDER BY seq LIMIT 1), (SELECT seq FROM stoker.{table} ORDER BY seq DESC LIMIT 1)

-- name: first_at
-- About the lowest number between two whose job was created at or after a moment, by halving: numbers follow times of creation.
WITH RECURSIVE halving (low, high) AS (
    SELECT $2::bigint, $3::bigint
    UNION ALL
    SELECT
        CASE WHEN probe.created_at >= $1 THEN low ELSE probe.seq + 1 END,
        CASE WHEN probe.created_at >= $1 THEN (low + high) / 2 ELSE high END
    FROM halving CROSS JOIN LATERAL (
        SELECT seq, created_at FROM stoker.{table} WHERE seq >= (low + high) / 2 ORDER BY seq LIMIT 1
    ) AS probe
    WHERE low < high
)
SELECT low FROM halving ORDER BY high - low LIMIT 1

-- name: pairs_of_lanes
-- The lanes and ranks in which jobs are queued, of these lanes, with the priority that the rank stands for: one probe for each.
WITH RECURSIVE pair (lane_id, rank) AS (
    SELECT lane.id, (SELECT rank FROM stoker.jobs WHERE status = 'queued' AND lane_id = lane.id ORDER BY rank LIMIT 1)
    FROM unnest($1::int[]) AS lane (id)
    UNION ALL
    SELECT lane_id, (
        SELECT jobs.rank FROM stoker.jobs
        WHERE status = 'queued' AND jobs.lane_id = pair.lane_id AND jobs.rank > pair.rank ORDER BY jobs.rank LIMIT 1
    )
    FROM pair WHERE rank IS NOT NULL
)
SELECT lane_id, rank, (
    SELECT priority FROM stoker.jobs
    WHERE status = 'queued' AND jobs.lane_id = pair.lane_id AND jobs.rank = pair.rank ORDER BY seq LIMIT 1
)
FROM pair WHERE rank IS NOT NULL

-- name: pairs_of_priority
-- The same, with one priority: a rank that may stand for it does where the first job there has it.
SELECT lane.id, may.rank, $3::smallint FROM unnest($1::int[]) AS lane (id) CROSS JOIN unnest($2::smallint[]) AS may (rank)
WHERE $3 = (
    SELECT priority FROM stoker.jobs WHERE status = 'queued' AND lane_id = lane.id AND jobs.rank = may.rank ORDER BY seq LIMIT 1
)

-- name: has_metadata
-- `seq` is that of the job: the inner select has no such column. A scalar, so that it is one look at the key for each job.
coalesce((
    SELECT true FROM (
        SELECT job_metadata.seq AS of_seq FROM stoker.job_metadata WHERE job_metadata.key = ? AND job_metadata.value = ?
    ) AS entry WHERE entry.of_seq = seq LIMIT 1
), false)

-- name: metadata_entries
SELECT count(*) FROM (SELECT FROM stoker.job_metadata WHERE key = $2 AND value = $3 LIMIT $1) AS entries

-- name: metadata_walk
-- The newest jobs with an entry of metadata, in the order of the key of that table; see `walk`. Those of the other table count
-- as looked at, and have no status.
SELECT entry.of_seq AS seq, found.* FROM (
    SELECT job_metadata.seq AS of_seq FROM stoker.job_metadata
    WHERE job_metadata.key = ? AND job_metadata.value = ? AND job_metadata.seq >= ? AND job_metadata.seq < ?
    ORDER BY job_metadata.seq {order} LIMIT ?
) AS entry
LEFT JOIN LATERAL (
    SELECT id, status, lane_id, priority, name, created_at, worker_id{more} FROM stoker.{table} AS jobs WHERE jobs.seq = entry.of_seq
) AS found ON true
ORDER BY entry.of_seq {order}

-- name: worker_matches
worker_id IN (SELECT ?::text UNION ALL SELECT sessions.id FROM stoker.sessions WHERE sessions.name = ?)

-- name: ids_between
SELECT (SELECT count(*) FROM (SELECT FROM stoker.jobs WHERE id BETWEEN $2::uuid AND $3::uuid LIMIT $1) AS a)
     + (SELECT count(*) FROM (SELECT FROM stoker.history WHERE id BETWEEN $2::uuid AND $3::uuid LIMIT $1) AS b)

-- name: names
SELECT (SELECT count(*) FROM (SELECT FROM stoker.jobs WHERE name IS NOT NULL LIMIT $1) AS a)
     + (SELECT count(*) FROM (SELECT FROM stoker.history WHERE name IS NOT NULL LIMIT $1) AS b)

-- name: failed_alike
SELECT count(*) FROM (SELECT FROM stoker.history WHERE status = 'failed' AND fingerprint = $2 LIMIT $1) AS a

-- name: failed_in_ways
SELECT count(*) FROM (SELECT FROM stoker.history WHERE status = 'failed' AND fingerprint = ANY($2::text[]) LIMIT $1) AS a

-- name: failure_samples
-- From one fingerprint to the next along the index: as many steps as there are kinds, however many jobs failed.
WITH RECURSIVE kinds (fingerprint) AS (
    SELECT min(fingerprint) FROM stoker.history WHERE status = 'failed' AND fingerprint > ''
    UNION ALL
    SELECT (
        SELECT min(later.fingerprint) FROM stoker.history AS later
        WHERE later.status = 'failed' AND later.fingerprint > kinds.fingerprint
    )
    FROM kinds WHERE kinds.fingerprint IS NOT NULL
)
SELECT kinds.fingerprint, lanes.type, sample.error
FROM kinds
CROSS JOIN LATERAL (
    SELECT one.lane_id, one.error FROM stoker.history AS one
    WHERE one.status = 'failed' AND one.fingerprint = kinds.fingerprint LIMIT 1
) AS sample
JOIN stoker.lanes ON lanes.id = sample.lane_id
LIMIT $1

-- name: dead_letter_groups
-- Off the index of failed jobs alone. The last two columns are totals over all groups.
SELECT fingerprint, count(*), min(completed_at), max(completed_at), count(*) OVER (), (sum(count(*)) OVER ())::bigint
FROM stoker.history
WHERE status = 'failed' AND discarded_at IS NULL AND fingerprint IS NOT NULL
GROUP BY fingerprint ORDER BY max(completed_at) DESC, fingerprint LIMIT $1

-- name: group_sparks
SELECT v.fingerprint, ((dead.completed_at - v.first_at) * $4 / v.span)::int, count(*)
FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS v (fingerprint, first_at, span)
JOIN stoker.history AS dead ON dead.fingerprint = v.fingerprint
WHERE dead.status = 'failed' AND dead.discarded_at IS NULL
GROUP BY 1, 2

-- name: group_samples
-- Of each of these groups the one that failed last. When that was is known, so it is found by seeking, not by sorting the group.
SELECT sample.* FROM unnest($1::text[], $2::bigint[]) AS v (wanted, last_at)
CROSS JOIN LATERAL (
    SELECT {final} FROM stoker.history
    WHERE status = 'failed' AND fingerprint = v.wanted AND discarded_at IS NULL AND completed_at = v.last_at
    ORDER BY seq DESC LIMIT 1
) AS sample

-- name: put_tallies
INSERT INTO stoker.series
    (shard, bucket_sec, at, queue, type, submitted, completed, failed, cancelled, retried, queue_depth_max, wait, run)
SELECT $1, * FROM unnest($2::int[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[],
                         $10::bigint[], $11::bigint[], $12::bytea[], $13::bytea[]) AS v
ON CONFLICT (bucket_sec, at, queue, type, shard) DO UPDATE SET
    submitted = excluded.submitted,
    completed = excluded.completed,
    failed = excluded.failed,
    cancelled = excluded.cancelled,
    retried = excluded.retried,
    queue_depth_max = excluded.queue_depth_max,
    wait = excluded.wait,
    run = excluded.run

-- name: put_gauges
INSERT INTO stoker.series_gauges
    (shard, bucket_sec, at, queue_depth_max, threads_used_max, threads_max, workers_max, autoscaler_wanted)
SELECT $1, * FROM unnest($2::int[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[]) AS v
ON CONFLICT (bucket_sec, at, shard) DO UPDATE SET
    queue_depth_max = excluded.queue_depth_max,
    threads_used_max = excluded.threads_used_max,
    threads_max = excluded.threads_max,
    workers_max = excluded.workers_max,
    autoscaler_wanted = excluded.autoscaler_wanted

-- name: tallies
SELECT bucket_sec, at, queue, type, submitted, completed, failed, cancelled, retried, queue_depth_max, wait, run
FROM stoker.series
WHERE bucket_sec = $1 AND at >= $2 AND at < $3 AND ($4::text IS NULL OR queue = $4) AND ($5::text IS NULL OR type = $5)

-- name: folded_tallies
-- A backlog of many queues and types gives a row of each every ten seconds, though nothing happens but waiting. '\x80' is an empty
-- histogram.
SELECT bucket_sec, at, queue, type, submitted, completed, failed, cancelled, retried, queue_depth_max, wait, run
FROM stoker.series WHERE bucket_sec = $1 AND at >= $2 AND at < $3 AND ($4::text IS NULL OR queue = $4) AND ($5::text IS NULL OR type = $5)
  AND (submitted + completed + failed + cancelled + retried > 0 OR length(wait) > 1 OR length(run) > 1)
UNION ALL
SELECT bucket_sec, max(at), queue, type, 0, 0, 0, 0, 0, max(queue_depth_max), '\x80'::bytea, '\x80'::bytea
FROM stoker.series WHERE bucket_sec = $1 AND at >= $2 AND at < $3 AND ($4::text IS NULL OR queue = $4) AND ($5::text IS NULL OR type = $5)
  AND NOT (submitted + completed + failed + cancelled + retried > 0 OR length(wait) > 1 OR length(run) > 1)
GROUP BY bucket_sec, queue, type

-- name: gauges
SELECT bucket_sec, at, queue_depth_max, threads_used_max, threads_max, workers_max, autoscaler_wanted
FROM stoker.series_gauges WHERE bucket_sec = $1 AND at >= $2 AND at < $3

-- name: purge_series
-- A part at a time, the oldest first: after a long pause there may be much.
-- What another coordinator is deleting is stepped over, here and below.
DELETE FROM stoker.series WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM stoker.series
    WHERE bucket_sec = $1 AND at < least($2, $3 + (SELECT min(at) FROM stoker.series WHERE bucket_sec = $1))
    FOR UPDATE SKIP LOCKED
))

-- name: purge_gauges
DELETE FROM stoker.series_gauges WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM stoker.series_gauges
    WHERE bucket_sec = $1 AND at < least($2, $3 + (SELECT min(at) FROM stoker.series_gauges WHERE bucket_sec = $1))
    FOR UPDATE SKIP LOCKED
))

-- name: put_bulk
INSERT INTO stoker.bulks (id, action, filter, status, total, total_capped, done, changed, created_at, finished_at, cursor)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (id) DO UPDATE SET
    status = excluded.status,
    done = excluded.done,
    changed = excluded.changed,
    finished_at = excluded.finished_at,
    cursor = excluded.cursor

-- name: lock_bulks
SELECT FROM stoker.bulks WHERE id = ANY($1::text[]) ORDER BY id COLLATE "C" FOR UPDATE

-- name: get_bulk
SELECT id, action, filter, status, total, total_capped, done, changed, created_at, finished_at, cursor
FROM stoker.bulks WHERE id = $1

-- name: hold_bulk
-- A coordinator that takes a step of an operation holds its row until the commit.
SELECT id, action, filter, status, total, total_capped, done, changed, created_at, finished_at, cursor
FROM stoker.bulks WHERE id = $1 FOR UPDATE

-- name: latest_bulks
SELECT id, action, filter, status, total, total_capped, done, changed, created_at, finished_at, cursor
FROM stoker.bulks ORDER BY created_at DESC, id DESC LIMIT $1

-- name: running_bulks
SELECT id, action, filter, status, total, total_capped, done, changed, created_at, finished_at, cursor
FROM stoker.bulks WHERE status = 'running' ORDER BY created_at DESC, id DESC LIMIT $1

-- name: stop_bulk
UPDATE stoker.bulks SET status = 'stopped', finished_at = $2 WHERE id = $1 AND status = 'running'

-- name: purge_bulks
DELETE FROM stoker.bulks WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM stoker.bulks WHERE status <> 'running' AND finished_at < $1 FOR UPDATE SKIP LOCKED
))

-- name: next_hot
-- The next jobs of a bulk operation, oldest first.
SELECT seq, id::text FROM stoker.jobs WHERE seq > $1 AND {where} ORDER BY seq LIMIT $2

-- name: next_final
SELECT seq, id::text FROM stoker.history WHERE seq > $1 AND {where} ORDER BY seq LIMIT $2

-- name: still_hot
-- Those of the given jobs that match when they are about to be changed.
SELECT {hot} FROM stoker.jobs WHERE seq = ANY($1::bigint[]) AND {where} ORDER BY seq FOR UPDATE

-- name: still_final
SELECT {final} FROM stoker.history WHERE seq = ANY($1::bigint[]) AND {where} ORDER BY seq FOR UPDATE

-- name: get_meta
SELECT value FROM stoker.meta WHERE key = $1

-- name: would_write
-- Refused where nothing can be written; else it does nothing.
DELETE FROM stoker.meta WHERE false

-- name: touch_meta
INSERT INTO stoker.meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- name: put_meta
INSERT INTO stoker.meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING
