-- What must be true of jobs that one statement inserts, looked at after the rows are written and before they are committed: each
-- look of a volatile function has a snapshot of its own, later than that of the statement which calls it.
--
-- `claimed` are the queues of those that are inserted as claimed: none may be paused, now or before the commit. The lock is only
-- tried: to wait for it here would be to wait with rows that others may want. `made` are ids made by clients: none may belong to a
-- job that is over. Loops over single values, because a plan for arrays is made anew at every call.
CREATE FUNCTION check_inserted(claimed text[], made uuid[], now_us bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    of_claimed text;
    of_client  uuid;
BEGIN
    IF cardinality(claimed) > 0 AND NOT pg_try_advisory_xact_lock_shared(6010243129) THEN
        RAISE lock_not_available USING MESSAGE = 'a queue is being paused';
    END IF;
    FOREACH of_claimed IN ARRAY claimed LOOP
        IF EXISTS (SELECT FROM stoker.paused_queues WHERE paused_queues.queue = of_claimed) THEN
            RAISE lock_not_available USING MESSAGE = 'a queue is paused';
        END IF;
    END LOOP;
    FOREACH of_client IN ARRAY made LOOP
        IF EXISTS (SELECT FROM stoker.history WHERE history.id = of_client)
            OR EXISTS (SELECT FROM stoker.spent_ids WHERE spent_ids.id = of_client AND spent_ids.expires_at + 0 > now_us)
        THEN
            RAISE unique_violation USING MESSAGE = 'the id of a job that is over was sent again';
        END IF;
    END LOOP;
END
$$;
