-- The output of jobs: see stoker.store.postgres.logs.

-- name: lock_outputs
-- Makes and locks the rows of these jobs, and tells what they say now, all in the order given: two coordinators that write
-- output of the same jobs wait and do not block each other. The update that changes nothing is what locks a row that was there.
INSERT INTO stoker.outputs AS known (job_id, created_at, last_seq, extents)
SELECT job_id, created_at, 0, '[]' FROM unnest($1::text[], $2::bigint[]) AS v (job_id, created_at)
ON CONFLICT (job_id) DO UPDATE SET extents = known.extents
RETURNING job_id, key, greatest(last_seq + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint), extents

-- name: write_output
WITH changed AS (
    UPDATE stoker.outputs SET last_seq = v.last_seq, extents = v.extents
    FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS v (key, last_seq, extents)
    WHERE outputs.key = v.key
)
INSERT INTO stoker.output_chunks (output, seq, claim_id, attempt, raw_bytes, data)
SELECT * FROM unnest($4::bigint[], $5::bigint[], $6::int[], $7::smallint[], $8::int[], $9::bytea[])

-- name: extents
SELECT job_id, extents FROM stoker.outputs WHERE job_id = ANY($1::text[])

-- name: read_page
-- One statement, and so one snapshot. The rows are measured before their data is fetched: it stands apart and is looked up
-- only for those that fit. In the order of `seq` alone: it is the position, and where a claim was written late by a coordinator
-- that had lost it, any other order would let a page end beyond rows that it left out.
SELECT outputs.extents, page.*
FROM stoker.outputs
LEFT JOIN LATERAL (
    SELECT seq, claim_id, attempt, raw_bytes, data, more
    FROM (
        SELECT near.*, sum(raw_bytes) OVER later - raw_bytes AS earlier_bytes, lead(seq) OVER later IS NOT NULL AS more
        FROM (
            SELECT seq, claim_id, attempt, raw_bytes, data FROM stoker.output_chunks
            WHERE output = outputs.key AND seq > $2
              AND ($3::int IS NULL OR claim_id = $3) AND ($4::int IS NULL OR attempt = $4)
            ORDER BY seq LIMIT $6::int + 1
        ) AS near
        WINDOW later AS (ORDER BY seq)
    ) AS measured
    WHERE earlier_bytes < $5::bigint
    ORDER BY seq LIMIT $6::int
) AS page ON true
WHERE outputs.job_id = $1
ORDER BY page.seq

-- name: written
SELECT key, job_id, created_at FROM stoker.outputs WHERE key > $1 ORDER BY key LIMIT $2

-- name: lock_known
-- As `lock_outputs`, for rows that need not be there. What was written until now is seen by the next statement, not by this.
SELECT key FROM unnest($1::text[]) WITH ORDINALITY AS v (job_id, place)
CROSS JOIN LATERAL (SELECT key FROM stoker.outputs WHERE outputs.job_id = v.job_id FOR UPDATE) AS known
ORDER BY place

-- name: delete_chunks
DELETE FROM stoker.output_chunks WHERE output = ANY($1::bigint[])

-- name: delete_outputs
DELETE FROM stoker.outputs WHERE key = ANY($1::bigint[])
