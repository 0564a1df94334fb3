-- Failed and cancelled jobs in the order of lists. A job that completes is in neither, so these cost the usual path nothing.
CREATE INDEX history_failed ON history (seq) WHERE status = 'failed';
CREATE INDEX history_cancelled ON history (seq) WHERE status = 'cancelled';
