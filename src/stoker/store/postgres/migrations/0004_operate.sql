-- How a failed job failed. Those that failed before this column are one group per type.
ALTER TABLE history ADD COLUMN fingerprint text;
UPDATE history SET fingerprint = 'earlier:' || lanes.type FROM lanes WHERE lanes.id = history.lane_id AND status = 'failed';
CREATE INDEX history_fingerprint ON history (fingerprint, discarded_at, completed_at) WHERE status = 'failed';
