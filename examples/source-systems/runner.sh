#!/usr/bin/env bash
# A runner of the plain contract: runner.sh --job-id ID --type TYPE --payload TEXT
# It refuses every other argument, prints the result as text, and says by its exit code whether it worked.
set -euo pipefail

job_id="" type="" payload=""
while [ $# -gt 0 ]; do
  case "$1" in
    --job-id) job_id="$2" ;;
    --type) type="$2" ;;
    --payload) payload="$2" ;;
    *) echo "unknown argument: $1" >&2; exit 2 ;;
  esac
  shift 2
done
[ -n "$job_id" ] && [ -n "$type" ] || { echo "--job-id and --type are required" >&2; exit 2; }

# A payload over 64 kB comes on standard input.
if [ "$payload" = "-" ]; then
  printf 'OK:'
  cat
  echo
else
  printf 'OK:%s\n' "$payload"
fi
