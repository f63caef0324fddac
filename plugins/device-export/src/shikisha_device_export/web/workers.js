// The workers of this device, by name: async (subtask, task, granted) => answer. Add your own; `calculator` and `notes`
// are two that need no network. A worker that the pool has on the device and that is not here says so.

// Sums, products and brackets; an Error for anything else. Nothing is evaluated as a program.
export function calculate(text) {
  const wanted = text.trim().replace(/^(?:what is|how much is|calculate)\s/i, "").replace(/[?=.\s]+$/, "");
  if (!/^[-+*/().\d\s]{1,1000}$/.test(wanted)) throw new Error("calculator: expected a sum such as 12 * (3 + 4)");
  const signs = wanted.match(/\d+(?:\.\d+)?|[-+*/()]/g) || [];
  let at = 0;
  function part() {
    const sign = signs[at++];
    if (sign === "-") return -part();
    if (sign === "(") {
      const inner = sum();
      if (signs[at++] !== ")") throw new Error("calculator: a bracket is open");
      return inner;
    }
    if (sign === undefined || !/^\d/.test(sign)) throw new Error("calculator: expected a sum such as 12 * (3 + 4)");
    return Number(sign);
  }
  function product() {
    let left = part();
    while (signs[at] === "*" || signs[at] === "/") left = signs[at++] === "*" ? left * part() : left / part();
    return left;
  }
  function sum() {
    let left = product();
    while (signs[at] === "+" || signs[at] === "-") left = signs[at++] === "+" ? left + product() : left - product();
    return left;
  }
  const found = sum();
  if (at !== signs.length || !Number.isFinite(found)) throw new Error("calculator: expected one sum");
  return String(Number(found.toPrecision(12)));
}

export const notes = {
  all: () => JSON.parse(localStorage.getItem("notes") || "[]"),
  add: text => localStorage.setItem("notes", JSON.stringify([text, ...notes.all()].slice(0, 1000))),
};

export const local = {
  calculator: async (_, task) => calculate(task.text),
  async notes(_, task) {
    if (/^note:/i.test(task.text)) {
      notes.add(task.text.slice(5).trim());
      return "noted on this device";
    }
    const words = task.text.toLowerCase().match(/[\p{L}\p{N}]{4,}/gu) || [];
    const held = text => words.filter(word => text.toLowerCase().includes(word)).length;
    const best = notes.all().map(text => [held(text), text]).sort((a, b) => b[0] - a[0])[0];
    return best && best[0] ? best[1] : "no note on this device says so";
  },
};
