-- Statements for schedules: see stoker.store.schedules.

-- name: due
SELECT {columns} FROM schedules WHERE due_at <= ? ORDER BY due_at LIMIT ?

-- name: by_name
SELECT {columns} FROM schedules WHERE name = ?

-- name: of_app
SELECT name FROM schedules WHERE app = ? ORDER BY name

-- name: put
INSERT OR REPLACE INTO schedules ({columns}) VALUES ({marks})

-- name: delete
DELETE FROM schedules WHERE name = ?

-- name: put_tick
INSERT INTO schedule_ticks ({columns}) VALUES ({marks})

-- name: put_tick_again
-- What was done by hand may be sent twice.
INSERT OR REPLACE INTO schedule_ticks ({columns}) VALUES ({marks})

-- name: last_tick
SELECT max(last) FROM schedule_ticks WHERE schedule = ? AND kind = 'tick'

-- name: fired
SELECT tick FROM schedule_ticks WHERE schedule = ?1 AND tick = ?2 AND kind <> 'trigger' AND outcome = 'fired'

-- name: job_status
SELECT status FROM jobs WHERE id = ?

-- name: release
UPDATE jobs SET status = CASE WHEN run_at > ?2 THEN 'scheduled' ELSE 'queued' END, run_at = max(run_at, ?2)
WHERE id = ?1 AND status = 'blocked' RETURNING lane_id, queue, type, status

-- name: next_at
SELECT due_at FROM schedules WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1

-- name: page
SELECT {columns} FROM schedules
WHERE name > ?1 AND (?3 = 0 OR orphaned_at IS NOT NULL) AND (?4 IS NULL OR app = ?4)
ORDER BY name LIMIT ?2

-- name: latest_ticks
SELECT {columns} FROM schedule_ticks WHERE schedule = ?1 AND tick < ?2 ORDER BY tick DESC LIMIT ?3

-- name: get_app
SELECT app, digest, version, at FROM schedule_apps WHERE app = ?

-- name: put_app
INSERT OR REPLACE INTO schedule_apps (app, digest, version, at) VALUES (?, ?, ?, ?)

-- name: all_apps
SELECT app, digest, version, at FROM schedule_apps ORDER BY app

-- name: purge_ticks
DELETE FROM schedule_ticks WHERE (schedule, kind, tick) IN (
    SELECT schedule, kind, tick FROM schedule_ticks WHERE at < ?1 ORDER BY at LIMIT ?2
)
