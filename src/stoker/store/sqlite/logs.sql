-- The output of jobs, in a file of its own: see stoker.store.logs. Times are integer microseconds, UTC.

-- name: schema
-- One row per attempt that wrote something, and rows of up to 64 KiB of what it wrote. A row of output holds all that one
-- transaction stored for one attempt, so that a job that prints a line at a time does not cost a row a line.
-- AUTOINCREMENT: `seq` is what followers remember, and must not come back after rows were deleted.
CREATE TABLE outputs (
    key        INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id     TEXT NOT NULL,
    claim_id   INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    stored     INTEGER NOT NULL,
    written    INTEGER NOT NULL,
    cut        INTEGER NOT NULL,
    open_line  INTEGER NOT NULL
);
CREATE UNIQUE INDEX outputs_claim ON outputs (job_id, claim_id);
CREATE TABLE chunks (
    seq       INTEGER PRIMARY KEY AUTOINCREMENT,
    output    INTEGER NOT NULL,
    raw_bytes INTEGER NOT NULL,
    data      BLOB NOT NULL
);
CREATE INDEX chunks_output ON chunks (output, seq);

-- name: last_output
SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'outputs';

-- name: find_outputs
-- All attempts of a batch, given as JSON [[job_id, claim_id], …], in one statement: each step of a statement lets go of the
-- interpreter and has to get it back from a busy event loop.
SELECT outputs.job_id, outputs.claim_id, outputs.key, stored, written, cut, open_line
FROM json_each(?) AS wanted
CROSS JOIN outputs ON outputs.job_id = wanted.value ->> 0 AND outputs.claim_id = wanted.value ->> 1;

-- name: insert_outputs
-- For as many rows as there are: see `find_outputs`.
INSERT INTO outputs (key, job_id, claim_id, attempt, created_at, stored, written, cut, open_line) VALUES {rows};

-- name: update_output
UPDATE outputs SET stored = ?, written = ?, cut = ?, open_line = ? WHERE key = ?;

-- name: insert_chunks
INSERT INTO chunks (output, raw_bytes, data) VALUES {rows};

-- name: read_chunks
-- Claims of a job follow each other, so the order of claims and then of rows is also the order of rows; asked for like this,
-- both indexes deliver it and nothing is sorted.
SELECT chunks.seq, outputs.claim_id, outputs.attempt, chunks.raw_bytes, chunks.data
FROM outputs CROSS JOIN chunks ON chunks.output = outputs.key
WHERE outputs.job_id = :job_id
  AND (:claim_id IS NULL OR outputs.claim_id = :claim_id)
  AND (:attempt IS NULL OR outputs.attempt = :attempt)
  AND chunks.seq > :after
ORDER BY outputs.claim_id, chunks.seq;

-- name: totals
SELECT coalesce(max(cut), 0), coalesce(sum(written), 0) FROM outputs
WHERE job_id = :job_id
  AND (:claim_id IS NULL OR claim_id = :claim_id)
  AND (:attempt IS NULL OR attempt = :attempt);

-- name: written
SELECT key, job_id, created_at FROM outputs WHERE key > ? ORDER BY key LIMIT ?;

-- name: delete_chunks
DELETE FROM chunks WHERE output IN (SELECT key FROM outputs WHERE job_id = ?);

-- name: delete_outputs
DELETE FROM outputs WHERE job_id = ?;
