#!/usr/bin/env bash
# The curl lines of the systems that Stoker unites, one after the other, against API_URL; ends with 1 if a job does not complete.
set -euo pipefail

API="${API_URL:-http://127.0.0.1:8080}"
auth=()
[ -n "${STOKER_TOKEN:-}" ] && auth=(-H "Authorization: Bearer $STOKER_TOKEN")

post() { curl -fsS -X POST "$API$1" ${auth[@]+"${auth[@]}"} -H 'Content-Type: application/json' -d "$2" "${@:3}"; }
get() { curl -fsS "$API$1" ${auth[@]+"${auth[@]}"}; }
field() { grep -o "\"$1\":\"[^\"]*\"" | head -n 1 | cut -d '"' -f 4; }

completes() { # the job in this answer, once it has ended
  local id status
  id="$(field id <<<"$1")"
  status="$(get "/jobs/$id?wait=60" | field status)"
  echo "$id $status"
  [ "$status" = completed ]
}

# A name is a type, and a payload is text.
completes "$(post /submit_job '{"name": "cpu_intensive", "payload": "test task"}')"
completes "$(post /submit_job '{"name": "io_intensive", "payload": "test task", "priority": 1}')"

# A payload alone; the same key gives the same job.
key="source-systems-$RANDOM$RANDOM"
first="$(post /jobs '{"payload": "hello"}' -H "X-Idempotency-Key: $key")"
again="$(post /jobs '{"payload": "hello"}' -H "X-Idempotency-Key: $key")"
[ "$(field id <<<"$first")" = "$(field id <<<"$again")" ]
completes "$first"

# A type, a priority and threads.
completes "$(post /jobs '{"type": "add_numbers", "payload": {"x": 1, "y": 2}, "priority": 0, "thread_demand": 1}')"
completes "$(post /jobs '{"type": "reverse_string", "payload": {"text": "stoker"}, "timeout_sec": 30}')"

# Looking.
get '/jobs?limit=5&offset=0' >/dev/null
get "/db/jobs/$(field id <<<"$first")" >/dev/null
for path in /health /ready /stats /metrics; do get "$path" >/dev/null; done
echo "all completed"
