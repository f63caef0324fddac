// The page: opens the device's policy, shows each decision before it is performed, and what it cost.
import { Device } from "./device.js";
import { local } from "./workers.js";

const place = name => document.getElementById(name);
const say = (name, text) => { place(name).textContent = text; };

if ("serviceWorker" in navigator) navigator.serviceWorker.register("./sw.js").catch(() => undefined);
const opening = Device.open();
window.shikisha = { opening, local };
opening.then(device => {
  window.shikisha.device = device;
  say("state", `Ready: ${device.pool.workers.filter(each => each.device).length} of ${device.pool.workers.length} workers are on this device.`);
  place("go").disabled = false;
}, error => say("state", `This device cannot decide: ${error.message}`));

place("ask").addEventListener("submit", async event => {
  event.preventDefault();
  const task = { text: place("text").value, private: place("private").checked, type: place("type").value.trim() };
  const device = await opening, decided = await device.decide(task);
  const who = decided.workers.map(each => each.name).join(", ") || "the server's conductor";
  const where = { device: `on this device, by ${who}, for nothing`, server: `on the server, by ${who}`,
    nowhere: "nowhere: it is private, and nobody on this device can do it" }[decided.where];
  say("decision", `Decided in ${decided.ms.toFixed(1)} ms: ${where}. ${decided.why[0].toUpperCase()}${decided.why.slice(1)}.`);
  say("plan", decided.plan.map((step, number) => `${number} ${step.worker}: ${step.subtask}`).join("\n"));
  try {
    const done = decided.where === "device" && !decided.plan.every(step => local[step.worker])
      ? { answer: "workers.js has no code for a worker of this plan" }
      : await device.perform(task, decided, local, place("key").value);
    say("answer", done.answer);
    say("cost", Number.isFinite(done.dollars) ? `It cost $${done.dollars.toFixed(4)}.` : "");
  } catch (error) {
    say("answer", error.message);
    say("cost", "");
  }
});
