#!/bin/sh
# Simon Willison's llm against Shikisha: the server as one of its extra OpenAI models.
# It keeps models in its user folder; here that is one of its own, so that yours stays as it is. To have the model at
# hand always, put the four lines into extra-openai-models.yaml beside $(llm logs path).
set -eu
question=${SHIKISHA_QUESTION:-"What is 9 times 939?"}
LLM_USER_PATH=$(mktemp -d)
export LLM_USER_PATH
trap 'rm -rf "$LLM_USER_PATH"' EXIT
cat > "$LLM_USER_PATH/extra-openai-models.yaml" <<EXTRA
- model_id: shikisha
  model_name: shikisha
  api_base: "$SHIKISHA_URL"
  api_key_name: shikisha
EXTRA
llm -m shikisha --key "$SHIKISHA_KEY" "$question"
