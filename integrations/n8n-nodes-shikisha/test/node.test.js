"use strict";
// The node in the context that n8n gives it, against a real HTTP server: $SHIKISHA_URL, or one of this file's own.

const { test, before, after } = require("node:test");
const assert = require("node:assert/strict");
const http = require("node:http");
const path = require("node:path");
const fs = require("node:fs");

const root = path.join(__dirname, "..");
const manifest = require(path.join(root, "package.json"));
const { Shikisha, requestOf } = require(path.join(root, manifest.n8n.nodes[0]));
const { ShikishaApi } = require(path.join(root, manifest.n8n.credentials[0]));

const own = { url: process.env.SHIKISHA_URL, key: process.env.SHIKISHA_KEY };
const seen = [];
let server;

before(async () => {
  if (own.url) return;
  server = http.createServer((request, response) => {
    let body = "";
    request.on("data", (part) => (body += part));
    request.on("end", () => {
      seen.push({ path: request.url, headers: request.headers, body: JSON.parse(body || "{}") });
      const replies = {
        "/v1/route": { worker: "cheap", prompt: "p", access: [], price: { most: 0.01 }, why: "it is cheap" },
        "/v1/chat/completions": { choices: [{ message: { content: "forty-two" } }], usage: { cost: 0.002 }, shikisha: { run: "r1" } },
        "/feedback": { run: "r1", score: 1 },
      };
      const refused = seen.at(-1).body.score > 1;
      const reply = refused ? undefined : replies[request.url];
      response.writeHead(reply ? 200 : 400, { "Content-Type": "application/json" });
      response.end(JSON.stringify(reply || { error: { message: "score: expected at most 1" } }));
    });
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  Object.assign(own, { url: `http://127.0.0.1:${server.address().port}`, key: "sk-test" });
});
after(() => server?.close());

/** What n8n gives a node: parameters, credentials, and a request that carries the credential. */
function context(parameters, failing = false) {
  const credential = new ShikishaApi();
  return {
    getInputData: () => [{ json: {} }],
    getNodeParameter: (name, _index, otherwise) => parameters[name] ?? otherwise,
    getCredentials: async () => ({ url: own.url, key: own.key }),
    continueOnFail: () => failing,
    helpers: {
      async httpRequestWithAuthentication(name, asked) {
        assert.equal(name, credential.name);
        const header = credential.authenticate.properties.headers.Authorization;
        const value = header.replace(/^=/, "").replace("{{$credentials.key}}", own.key);
        const headers = { "Content-Type": "application/json", ...asked.headers, Authorization: value };
        const reply = await fetch(asked.url, { method: asked.method, headers, body: JSON.stringify(asked.body) });
        const told = await reply.json();
        if (!reply.ok) throw new Error(told.error?.message || `status ${reply.status}`);
        return told;
      },
    },
  };
}

const run = async (parameters, failing) => (await new Shikisha().execute.call(context(parameters, failing)))[0].map((item) => item.json);

test("the package has the layout that n8n loads", () => {
  assert.ok(manifest.keywords.includes("n8n-community-node-package"));
  assert.match(manifest.name, /^n8n-nodes-/);
  const node = new Shikisha().description;
  assert.deepEqual(node.credentials.map((each) => each.name), [new ShikishaApi().name]);
  assert.ok(fs.existsSync(path.join(root, "nodes/Shikisha", node.icon.replace("file:", ""))));
  for (const each of node.properties) assert.ok(each.displayName && each.name && each.type && "default" in each, each.name);
});

test("route says who would do it, and performs nothing", async () => {
  const [told] = await run({ operation: "route", prompt: "What is the answer?" });
  for (const name of ["worker", "prompt", "access", "price", "why"]) assert.ok(name in told, name);
});

test("ask returns the answer, its run and its cost; feedback grades it", async () => {
  const [told] = await run({ operation: "ask", prompt: "What is the answer?", dollars: 0.5 });
  assert.equal(told.answer, "forty-two");
  assert.equal(typeof told.cost, "number");
  const [graded] = await run({ operation: "feedback", run: told.run, score: 1 });
  assert.equal(graded.run, told.run);
});

test("the cheapest model that works: route, ask that worker, ask all where its answer fails", async () => {
  const [routed] = await run({ operation: "route", prompt: "What is the answer?" });
  const [first] = await run({ operation: "ask", prompt: "What is the answer?", workers: routed.worker });
  assert.equal(first.answer, "forty-two");
  if (server) assert.equal(seen.at(-1).headers["x-shikisha-workers"], "cheap");
});

test("what goes wrong is thrown, or an item where the workflow goes on", async () => {
  await assert.rejects(run({ operation: "feedback", run: "none-such", score: 7 }), /score|400/);
  const [told] = await run({ operation: "nothing" }, true);
  assert.match(told.error, /unknown operation nothing: expected route, ask or feedback/);
  assert.throws(() => requestOf("nothing", {}));
});

test("the workflow uses this node and is connected", () => {
  const flow = JSON.parse(fs.readFileSync(path.join(root, "workflows/cheapest-model-that-works.json"), "utf8"));
  const names = new Set(flow.nodes.map((node) => node.name));
  assert.ok(flow.nodes.filter((node) => node.type === "n8n-nodes-shikisha.shikisha").length >= 3);
  for (const [from, outputs] of Object.entries(flow.connections)) {
    assert.ok(names.has(from), from);
    for (const each of outputs.main.flat()) assert.ok(names.has(each.node), each.node);
  }
});
