-- Statements for schedules: see stoker.store.schedules.

-- name: due
-- What another coordinator is working on right now is stepped over.
SELECT {columns} FROM stoker.schedules
WHERE due_at <= coalesce($2::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED

-- name: lock_names
-- Two that make the same schedule at once take turns, also while there is no row to lock.
SELECT pg_advisory_xact_lock(601024313, hashtext(name)) FROM (SELECT DISTINCT name FROM unnest($1::text[]) AS given (name) ORDER BY name) AS wanted

-- name: by_names
SELECT {columns} FROM stoker.schedules WHERE name = ANY($1::text[]) ORDER BY name FOR UPDATE

-- name: by_name
SELECT {columns} FROM stoker.schedules WHERE name = $1

-- name: of_app
SELECT name FROM stoker.schedules WHERE app = $1 ORDER BY name

-- name: put
INSERT INTO stoker.schedules ({columns}) VALUES ({marks})
ON CONFLICT (name) DO UPDATE SET ({columns}) = ({excluded})

-- name: delete
DELETE FROM stoker.schedules WHERE name = $1

-- name: put_ticks
INSERT INTO stoker.schedule_ticks ({columns})
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::bigint[])

-- name: put_ticks_again
-- What was done by hand may be sent twice.
INSERT INTO stoker.schedule_ticks ({columns})
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::bigint[])
ON CONFLICT (schedule, kind, tick) DO UPDATE SET
    outcome = excluded.outcome, reason = excluded.reason, job_id = excluded.job_id, at = excluded.at

-- name: last_tick
SELECT max(last) FROM stoker.schedule_ticks WHERE schedule = $1 AND kind = 'tick'

-- name: fired
SELECT DISTINCT tick FROM stoker.schedule_ticks
WHERE schedule = $1 AND tick = ANY($2::bigint[]) AND kind <> 'trigger' AND outcome = 'fired'

-- name: job_statuses
-- A job that moves meanwhile is seen in one of the tables or in both; that it is over counts.
SELECT id::text, status FROM stoker.jobs WHERE id = ANY($1::uuid[])
UNION ALL SELECT id::text, status FROM stoker.history WHERE id = ANY($1::uuid[])

-- name: release
-- Without those that others have locked.
WITH held AS (
    SELECT seq FROM stoker.jobs WHERE id = ANY($1::uuid[]) AND status = 'blocked' ORDER BY seq FOR UPDATE SKIP LOCKED
)
UPDATE stoker.jobs SET status = CASE WHEN run_at > $2 THEN 'scheduled' ELSE 'queued' END, run_at = greatest(run_at, $2)
FROM held WHERE jobs.seq = held.seq
RETURNING id::text, lane_id, status

-- name: still_blocked
SELECT FROM stoker.jobs WHERE id = ANY($1::uuid[]) AND status = 'blocked'

-- name: next_at
SELECT due_at FROM stoker.schedules WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1

-- name: page
SELECT {columns} FROM stoker.schedules
WHERE name > $1 AND (NOT $3::boolean OR orphaned_at IS NOT NULL) AND ($4::text IS NULL OR app = $4)
ORDER BY name LIMIT $2

-- name: latest_ticks
SELECT {columns} FROM stoker.schedule_ticks WHERE schedule = $1 AND tick < $2 ORDER BY tick DESC LIMIT $3

-- name: get_app
SELECT app, digest, version, at FROM stoker.schedule_apps WHERE app = $1

-- name: lock_app
SELECT pg_advisory_xact_lock(601024314, hashtext($1))

-- name: put_app
INSERT INTO stoker.schedule_apps (app, digest, version, at) VALUES ($1, $2, $3, $4)
ON CONFLICT (app) DO UPDATE SET digest = excluded.digest, version = excluded.version, at = excluded.at

-- name: all_apps
SELECT app, digest, version, at FROM stoker.schedule_apps ORDER BY app

-- name: purge_ticks
DELETE FROM stoker.schedule_ticks WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM stoker.schedule_ticks WHERE at < $1 ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED
))
