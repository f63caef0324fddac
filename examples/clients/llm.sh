#!/bin/sh
# Simon Willison's llm against Shikisha: the server as one of its extra OpenAI models.
set -eu
question=${SHIKISHA_QUESTION:-"Can you find the keeper listed for ruti directly glued to 68 subtracted from 9 times 939?"}
folder=$(llm logs path | xargs dirname)
mkdir -p "$folder"
cat > "$folder/extra-openai-models.yaml" <<EXTRA
- model_id: shikisha
  model_name: shikisha
  api_base: "$SHIKISHA_URL"
  api_key_name: shikisha
EXTRA
llm -m shikisha --key "$SHIKISHA_KEY" "$question"
