-- Jobs for several threads that wait for a large enough worker, and those that run on one thread if none comes, stand in lanes
-- of their own: the first would be in the way of the second. For a demand of one thread it makes no difference.
ALTER TABLE lanes ADD COLUMN on_oversize text NOT NULL DEFAULT 'degrade';

-- Ids go on without a gap. Finished jobs move too, because they may be replayed.
INSERT INTO lanes (id, queue, type, labels, thread_demand, group_key, concurrency_key, on_oversize)
SELECT (SELECT max(id) FROM lanes) + row_number() OVER (ORDER BY id),
       queue, type, labels, thread_demand, group_key, concurrency_key, 'wait'
FROM lanes
WHERE thread_demand > 1 AND id IN (
    SELECT lane_id FROM jobs WHERE on_oversize = 'wait' UNION SELECT lane_id FROM history WHERE on_oversize = 'wait'
);

UPDATE jobs SET lane_id = waiting.id
FROM lanes AS mixed JOIN lanes AS waiting
  ON waiting.on_oversize = 'wait' AND waiting.queue = mixed.queue AND waiting.type = mixed.type
 AND waiting.labels IS NOT DISTINCT FROM mixed.labels AND waiting.thread_demand = mixed.thread_demand
 AND waiting.group_key IS NOT DISTINCT FROM mixed.group_key
 AND waiting.concurrency_key IS NOT DISTINCT FROM mixed.concurrency_key
WHERE jobs.on_oversize = 'wait' AND mixed.id = jobs.lane_id AND mixed.on_oversize = 'degrade';

UPDATE history SET lane_id = waiting.id
FROM lanes AS mixed JOIN lanes AS waiting
  ON waiting.on_oversize = 'wait' AND waiting.queue = mixed.queue AND waiting.type = mixed.type
 AND waiting.labels IS NOT DISTINCT FROM mixed.labels AND waiting.thread_demand = mixed.thread_demand
 AND waiting.group_key IS NOT DISTINCT FROM mixed.group_key
 AND waiting.concurrency_key IS NOT DISTINCT FROM mixed.concurrency_key
WHERE history.on_oversize = 'wait' AND mixed.id = history.lane_id AND mixed.on_oversize = 'degrade';
