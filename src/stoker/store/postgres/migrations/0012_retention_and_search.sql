-- Until when a job that has ended is kept; only jobs with a `keep_sec` of their own are here, from their end on.
CREATE TABLE keeps (
    seq bigint PRIMARY KEY,
    at  bigint NOT NULL
);
CREATE INDEX keeps_at ON keeps (at, seq);

-- The metadata of jobs, one row for each entry, for searches; jobs without metadata have none.
CREATE TABLE job_metadata (
    key   text NOT NULL,
    value text NOT NULL,
    seq   bigint NOT NULL,
    PRIMARY KEY (key, value, seq)
);
CREATE INDEX job_metadata_seq ON job_metadata (seq);
INSERT INTO job_metadata (key, value, seq)
SELECT entry.key, entry.value, jobs.seq FROM jobs, jsonb_each_text(jobs.metadata::jsonb) AS entry WHERE jobs.metadata IS NOT NULL
UNION ALL
SELECT entry.key, entry.value, history.seq FROM history, jsonb_each_text(history.metadata::jsonb) AS entry
WHERE history.metadata IS NOT NULL;

-- An edit replaces the metadata of a waiting job. Inserts and deletes are told to this table by the statements beside them.
CREATE FUNCTION metadata_edited() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM stoker.job_metadata WHERE seq = NEW.seq;
    INSERT INTO stoker.job_metadata (key, value, seq)
    SELECT entry.key, entry.value, NEW.seq FROM jsonb_each_text(NEW.metadata::jsonb) AS entry WHERE NEW.metadata IS NOT NULL;
    RETURN NULL;
END
$$;
CREATE TRIGGER job_metadata_edited AFTER UPDATE OF metadata ON jobs
FOR EACH ROW WHEN (NEW.metadata IS DISTINCT FROM OLD.metadata) EXECUTE FUNCTION metadata_edited();
