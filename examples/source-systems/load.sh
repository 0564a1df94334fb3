#!/usr/bin/env bash
# load.sh [JOBS] [WAVE]: sends JOBS (200) jobs with text payloads to /submit_job, WAVE (25) at a time, and waits for all of them.
# Ends with 1 if one does not complete.
set -euo pipefail

API="${API_URL:-http://127.0.0.1:8080}"
JOBS="${1:-200}" WAVE="${2:-25}"
NAMES=(cpu_intensive io_intensive mixed_workload network_task default)
auth=()
[ -n "${STOKER_TOKEN:-}" ] && auth=(-H "Authorization: Bearer $STOKER_TOKEN")

answers="$(mktemp -d)"
trap 'rm -rf "$answers"' EXIT
field() { grep -o "\"$1\":\"[^\"]*\"" | head -n 1 | cut -d '"' -f 4; }

for ((first = 0; first < JOBS; first += WAVE)); do
  for ((n = first; n < first + WAVE && n < JOBS; n++)); do
    curl -fsS -X POST "$API/submit_job" ${auth[@]+"${auth[@]}"} -H 'Content-Type: application/json' \
      -d "{\"name\": \"${NAMES[n % ${#NAMES[@]}]}\", \"payload\": \"task $n\"}" >"$answers/$n" &
  done
  wait
  echo "$((first + WAVE < JOBS ? first + WAVE : JOBS)) submitted"
done

failed=0
for ((n = 0; n < JOBS; n++)); do
  id="$(field id <"$answers/$n" || true)"
  status="$(curl -fsS "$API/jobs/$id?wait=60" ${auth[@]+"${auth[@]}"} | field status || true)"
  [ "$status" = completed ] || { echo "job ${id:-$n}: ${status:-not submitted}" >&2; failed=$((failed + 1)); }
done
echo "$((JOBS - failed)) of $JOBS completed"
[ "$failed" -eq 0 ]
