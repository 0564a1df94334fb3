-- What jobs wrote: see stoker.store.logs. Times are integer microseconds, UTC.

-- One row per job that wrote something; a write of the job's output locks it. `extents` says of each claim how far its
-- output reaches, as JSON [[claim_id, attempt, [stored, written, cut, open_line]], …]. The row is rewritten with each write,
-- in place where the page has room.
CREATE TABLE outputs (
    key        bigint GENERATED ALWAYS AS IDENTITY,
    created_at bigint NOT NULL,
    last_seq   bigint NOT NULL,
    job_id     text COLLATE "C" PRIMARY KEY,
    extents    text NOT NULL
) WITH (
    fillfactor = 60,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_scale_factor = 0.02
);
CREATE UNIQUE INDEX outputs_key ON outputs (key);

-- Up to 64 KiB of what one claim wrote, compressed already. `seq` is what followers remember: for one job it grows in the order
-- of commits, because it is taken while the row above is held. It is the server's time, or one more than the last where that is
-- later; so it does not come back after a crash that lost the last moments of output, as the numbers of a sequence would.
CREATE TABLE output_chunks (
    output    bigint NOT NULL,
    seq       bigint NOT NULL,
    claim_id  integer NOT NULL,
    attempt   smallint NOT NULL,
    raw_bytes integer NOT NULL,
    data      bytea NOT NULL,
    PRIMARY KEY (output, seq)
);
ALTER TABLE output_chunks ALTER COLUMN data SET STORAGE EXTERNAL;
