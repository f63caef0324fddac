#!/bin/sh
# Shikisha by curl: a chat with what every step did, the run's journal as events, and the run as JSON.
set -eu
question=${SHIKISHA_QUESTION:-"What is 9 times 939?"}
root=${SHIKISHA_URL%/v1}
body=$(printf '{"model": "shikisha", "messages": [{"role": "user", "content": "%s"}]}' "$question")
answer=$(curl -sS -D /dev/stderr "$SHIKISHA_URL/chat/completions" -H "Authorization: Bearer $SHIKISHA_KEY" \
  -H 'Content-Type: application/json' -H 'X-Shikisha-Metadata: summary' -d "$body")
echo "$answer"
run=$(printf '%s' "$answer" | sed -n 's/.*"run": *"\([^"]*\)".*/\1/p')
curl -sS -N "$root/runs/$run/events" -H "Authorization: Bearer $SHIKISHA_KEY" | grep '^event:'
curl -sS "$root/runs/$run" -H "Authorization: Bearer $SHIKISHA_KEY"
echo
