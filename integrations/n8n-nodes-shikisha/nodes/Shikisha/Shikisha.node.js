"use strict";

const shown = (...operations) => ({ show: { operation: operations } });

/** What an operation sends: method, path, body and headers. Pure, so that a test can look at it. */
function requestOf(operation, given) {
  switch (operation) {
    case "route":
      return { method: "POST", path: "/v1/route", body: { model: given.model || "shikisha", prompt: given.prompt }, headers: caps(given) };
    case "ask": {
      const body = { model: given.model || "shikisha", messages: [{ role: "user", content: given.prompt }] };
      const headers = { "X-Shikisha-Metadata": "summary", ...caps(given) };
      if (given.workers) headers["X-Shikisha-Workers"] = given.workers;
      return { method: "POST", path: "/v1/chat/completions", body, headers };
    }
    case "feedback":
      return { method: "POST", path: "/feedback", body: { run: given.run, score: given.score, remark: given.remark || "" }, headers: {} };
    default:
      throw new Error(`unknown operation ${operation}: expected route, ask or feedback`);
  }
}

function caps(given) {
  const headers = {};
  if (given.dollars > 0) headers["X-Shikisha-Budget-Dollars"] = String(given.dollars);
  if (given.domain) headers["X-Shikisha-Domain"] = given.domain;
  return headers;
}

/** What an item holds afterwards: flat fields that the next node can use. */
function resultOf(operation, reply) {
  if (operation !== "ask") return reply;
  const choice = (reply.choices || [])[0] || {};
  const facts = reply.shikisha || {};
  return { answer: (choice.message || {}).content ?? null, run: facts.run ?? null, cost: (reply.usage || {}).cost ?? null, reply };
}

class Shikisha {
  constructor() {
    this.description = {
      displayName: "Shikisha",
      name: "shikisha",
      icon: "file:shikisha.svg",
      group: ["transform"],
      version: 1,
      subtitle: "={{$parameter.operation}}",
      description: "Route a task to the cheapest model that works, run it within a budget, grade its answer",
      defaults: { name: "Shikisha" },
      usableAsTool: true,
      inputs: ["main"],
      outputs: ["main"],
      credentials: [{ name: "shikishaApi", required: true }],
      properties: [
        {
          displayName: "Operation",
          name: "operation",
          type: "options",
          noDataExpression: true,
          default: "ask",
          options: [
            { name: "Route", value: "route", action: "Decide who performs a task", description: "Worker, prompt, access, price and why; nothing is performed" },
            { name: "Ask", value: "ask", action: "Perform a task", description: "The answer, with its run and its cost" },
            { name: "Feedback", value: "feedback", action: "Grade an answer", description: "From 0 to 1; routing learns from it" },
          ],
        },
        { displayName: "Prompt", name: "prompt", type: "string", typeOptions: { rows: 4 }, default: "", required: true, displayOptions: shown("route", "ask") },
        { displayName: "Model", name: "model", type: "string", default: "shikisha", description: "Who conducts; see /v1/models", displayOptions: shown("route", "ask") },
        { displayName: "Workers", name: "workers", type: "string", default: "", description: "The workers that may answer, as in a,b; empty for all", displayOptions: shown("ask") },
        { displayName: "Most Dollars", name: "dollars", type: "number", typeOptions: { minValue: 0 }, default: 0, description: "The most that it may cost; 0 for the key's own budget", displayOptions: shown("route", "ask") },
        { displayName: "Domain", name: "domain", type: "string", default: "", description: "The type of task, for rules and policies", displayOptions: shown("route", "ask") },
        { displayName: "Run", name: "run", type: "string", default: "={{ $json.run }}", required: true, displayOptions: shown("feedback") },
        { displayName: "Score", name: "score", type: "number", typeOptions: { minValue: 0, maxValue: 1, numberPrecision: 2 }, default: 1, displayOptions: shown("feedback") },
        { displayName: "Remark", name: "remark", type: "string", default: "", displayOptions: shown("feedback") },
      ],
    };
  }

  async execute() {
    const items = this.getInputData();
    const { url } = await this.getCredentials("shikishaApi");
    const results = [];
    for (let index = 0; index < items.length; index++) {
      try {
        const operation = this.getNodeParameter("operation", index);
        const names = { route: ["prompt", "model", "dollars", "domain"], ask: ["prompt", "model", "workers", "dollars", "domain"], feedback: ["run", "score", "remark"] };
        const given = Object.fromEntries((names[operation] || []).map((name) => [name, this.getNodeParameter(name, index, "")]));
        const asked = requestOf(operation, given);
        const reply = await this.helpers.httpRequestWithAuthentication.call(this, "shikishaApi", {
          method: asked.method,
          url: `${url.replace(/\/+$/, "").replace(/\/v1$/, "")}${asked.path}`,
          headers: asked.headers,
          body: asked.body,
          json: true,
        });
        results.push({ json: resultOf(operation, reply), pairedItem: { item: index } });
      } catch (error) {
        if (!this.continueOnFail()) throw error;
        results.push({ json: { error: error.message }, pairedItem: { item: index } });
      }
    }
    return [results];
  }
}

module.exports = { Shikisha, requestOf, resultOf };
