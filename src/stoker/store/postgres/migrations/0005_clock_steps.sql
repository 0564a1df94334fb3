-- Retries that back off, apart from the jobs that a person scheduled: after a clock was set back they are looked through. A job
-- that has not failed is never in it.
CREATE INDEX jobs_retries ON jobs (run_at) WHERE status = 'scheduled' AND claim_id > 0;
