-- Until when a job that has ended is kept; only jobs with a `keep_sec` of their own are here, from their end on.
CREATE TABLE keeps (
    seq INTEGER PRIMARY KEY,
    at  INTEGER NOT NULL
);
CREATE INDEX keeps_at ON keeps (at, seq);

-- The metadata of jobs, one row for each entry, for searches; jobs without metadata have none.
CREATE TABLE job_metadata (
    key   TEXT NOT NULL,
    value TEXT NOT NULL,
    seq   INTEGER NOT NULL,
    PRIMARY KEY (key, value, seq)
) WITHOUT ROWID;
CREATE INDEX job_metadata_seq ON job_metadata (seq);
INSERT INTO job_metadata (key, value, seq)
SELECT entry.key, entry.value, jobs.seq FROM jobs, json_each(jobs.metadata) AS entry WHERE jobs.metadata IS NOT NULL;

-- An edit replaces the metadata of a waiting job. Inserts and deletes are told to this table by the statements beside them.
CREATE TRIGGER job_metadata_edited AFTER UPDATE OF metadata ON jobs WHEN NEW.metadata IS NOT OLD.metadata
BEGIN
    DELETE FROM job_metadata WHERE seq = NEW.seq;
    INSERT INTO job_metadata (key, value, seq)
    SELECT key, value, NEW.seq FROM json_each(NEW.metadata) WHERE NEW.metadata IS NOT NULL;
END;
