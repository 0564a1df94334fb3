#!/usr/bin/env bash
# A complete Stoker worker in Bash with curl and jq: `./worker.sh`. One job at a time, by plain HTTP
# (docs/reference/worker-protocol.md): register, lease, heartbeat in the background while a job runs, report.
set -uo pipefail

url=${STOKER_API_URL:-http://127.0.0.1:8080}
types='["count_words", "disk_free"]'

# What this worker can do: a function per job type, payload (JSON) on stdin, result (JSON) on stdout.
count_words() { jq -r 'if type == "string" then . else error("the payload must be text") end' | wc -w; }
disk_free() { df -Pk "$(jq -r '.path // "/"')" | awk 'NR == 2 {print "{\"free_kb\": " $4 "}"}'; }

post() { # PATH BODY: the answer on stdout, its status in $status; fails when there is no connection
  local answer
  answer=$(curl -sS -X POST "$url$1" -H 'Content-Type: application/json' --data-binary "$2" -w '\n%{http_code}' \
    ${STOKER_TOKEN:+-H "Authorization: Bearer $STOKER_TOKEN"}) || return 1
  status=${answer##*$'\n'} body=${answer%$'\n'*}
}

register() {
  until post /workers "{\"name\": \"bash-$$\", \"threads\": 1, \"types\": $types${QUEUES:+, \"queues\": [\"${QUEUES//,/\",\"}\"]}}" &&
    [ "$status" = 201 ]; do
    echo "cannot register: ${body:-no connection}" >&2
    sleep 1
  done
  session=$(jq -r .id <<<"$body") interval=$(jq -r .heartbeat_interval_sec <<<"$body")
  echo "registered as $session for $types"
}

beat() { # CLAIM PID: heartbeats while the job runs; ends the job when it is cancelled or no longer ours
  while sleep "$interval"; do
    post "/workers/$session/heartbeat" "{\"held\": [$1]}" || continue
    if [ "$status" = 404 ] || jq -e '(.cancel + .revoked) | length > 0' <<<"$body" >/dev/null; then
      kill -TERM -- "-$2" 2>/dev/null
    fi
  done
}

run() { # JOB: runs it in a process group of its own and reports how it ended
  local claim type limit output errors pid beats timer outcome
  claim=$(jq -c '{id, claim_id}' <<<"$1") type=$(jq -r .type <<<"$1") limit=$(jq -r '.timeout_sec // "infinity"' <<<"$1")
  output=$(mktemp) errors=$(mktemp)
  set -m
  (jq -c .payload <<<"$1" | "$type" >"$output" 2>"$errors") &
  pid=$!
  (beat "$claim" "$pid") &
  beats=$!
  (sleep "$limit" && kill -TERM -- "-$pid") 2>/dev/null &
  timer=$!
  set +m
  if wait "$pid" && jq -e . "$output" >/dev/null 2>&1; then
    outcome=$(jq -c --slurpfile result "$output" '. + {outcome: "completed", result: $result[0]}' <<<"$claim")
  else
    outcome=$(jq -c --rawfile message "$errors" '. + {outcome: "failed", error: {type: "BashError", message: $message}}' <<<"$claim")
  fi
  kill -- "-$beats" "-$timer" 2>/dev/null
  rm -f "$output" "$errors"
  # Repeated until it arrives: the claim makes a repeat harmless, and a stale one is refused.
  until post "/workers/$session/report" "{\"reports\": [$outcome]}" && [ "$status" -lt 500 ]; do sleep 1; done
}

trap 'leaving=1' INT TERM
leaving= session=
while [ -z "$leaving" ]; do
  [ -n "$session" ] || register
  if post "/workers/$session/lease?wait=2" '{}' && [ "$status" = 200 ]; then
    while read -r job; do run "$job"; done < <(jq -c '.jobs[]' <<<"$body")
  elif [ "${status:-0}" = 404 ]; then
    session= # given up: begin anew
  else
    sleep 1
  fi
done
