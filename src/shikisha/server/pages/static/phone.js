// Passkeys, notifications, links, installing, keys and drafts. Forms say with `data-passkey`, `data-push` or `data-link` what they are.
"use strict";
(() => {
  const bytes = text => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), sign => sign.charCodeAt(0));
  const text = buffer => btoa(String.fromCharCode(...new Uint8Array(buffer)))
    .replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");

  async function post(way, fields) {
    const answer = await fetch(way, { method: "POST", body: new URLSearchParams(fields) });
    const found = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Error(found.error ? found.error.message : `the server answered ${answer.status}`);
    return found;
  }
  function written(credential) {
    const response = {};
    for (const name of ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"])
      if (credential.response[name]) response[name] = text(credential.response[name]);
    if (credential.response.getTransports) response.transports = credential.response.getTransports();
    return JSON.stringify({ id: credential.id, rawId: text(credential.rawId), type: credential.type, response,
      clientExtensionResults: credential.getClientExtensionResults() });
  }
  const listed = named => (named || []).map(each => ({ ...each, id: bytes(each.id) }));
  async function sign(options) {
    const publicKey = { ...options, challenge: bytes(options.challenge),
      allowCredentials: listed(options.allowCredentials) };
    return written(await navigator.credentials.get({ publicKey }));
  }
  async function make(options) {
    const publicKey = { ...options, challenge: bytes(options.challenge),
      user: { ...options.user, id: bytes(options.user.id) }, excludeCredentials: listed(options.excludeCredentials) };
    return written(await navigator.credentials.create({ publicKey }));
  }
  const words = { NotAllowedError: "the passkey was not used: cancelled, or not in time",
    InvalidStateError: "this device has a passkey of yours already",
    SecurityError: "passkeys do not work at this address: open the pages at the address of the server" };
  function problem(form, error) {
    const place = form.querySelector("[role=alert]") || document.getElementById("device-problem")
      || form.insertBefore(Object.assign(document.createElement("p"), { className: "note bad" }), form.firstChild);
    place.setAttribute("role", "alert");
    place.textContent = words[error.name] || error.message;
    place.hidden = false;
  }
  const fields = (form, more) => ({ ...Object.fromEntries(new FormData(form)), ...more });
  async function earlier(form) {
    const options = await post("/ui/device/passkeys/manage", fields(form, {}));
    return options.challenge ? sign(options) : "";
  }
  const acts = {
    async add(form) {
      const options = await post("/ui/device/passkeys/options", fields(form, { passkey: await earlier(form) }));
      await post(form.getAttribute("action"), fields(form, { passkey: await make(options) }));
      location.reload();
    },
    async remove(form) {
      await post(form.getAttribute("action"), fields(form, { passkey: await earlier(form) }));
      location.reload();
    },
    async login(form) {
      await post(form.getAttribute("action"), { passkey: await sign(await post(`${form.getAttribute("action")}/options`, {})) });
      location.assign(form.dataset.next);
    },
    async approve(form, button) {
      const passkey = await sign(await post(`${form.getAttribute("action")}/passkey`, fields(form, {})));
      for (const [name, value] of [["passkey", passkey], ["decision", button.value]])
        form.append(Object.assign(document.createElement("input"), { type: "hidden", name, value }));
      form.submit();
    },
  };
  async function turn(form, on) {
    const worker = await navigator.serviceWorker.ready;
    const held = await worker.pushManager.getSubscription();
    if (!on) {
      if (held) await post("/ui/device/push/remove", fields(form, { endpoint: held.endpoint })).then(() => held.unsubscribe());
      return "This device is not notified any more.";
    }
    if (await Notification.requestPermission() !== "granted") throw new Error("this browser does not allow notifications");
    const options = { userVisibleOnly: true, applicationServerKey: bytes(form.dataset.push) };
    const made = held || await worker.pushManager.subscribe(options);
    await post(form.getAttribute("action"), fields(form, { subscription: JSON.stringify(made) }));
    return "This device is notified.";
  }

  document.addEventListener("submit", event => {
    const form = event.target, button = event.submitter;
    const act = acts[form.dataset.passkey];
    if (act && !(form.dataset.passkey === "approve" && (!button || button.value !== "yes"))) {
      event.preventDefault();
      if (!window.PublicKeyCredential) return problem(form, new Error(words.SecurityError));
      act(form, button).catch(error => problem(form, error));
    } else if (form.dataset.push) {
      event.preventDefault();
      if (!("serviceWorker" in navigator) || !("PushManager" in window))
        return problem(form, new Error("notifications need HTTPS, and on an iPhone the installed app"));
      turn(form, button.value === "on").then(said => {
        button.textContent = said;
      }).catch(error => problem(form, error));
    }
  });
  const link = document.querySelector("form[data-link] input[name=token]");
  function takeToken() {
    if (location.hash.length < 2) return;
    link.value = location.hash.slice(1);
    history.replaceState(null, "", location.pathname);
  }
  if (link) {
    takeToken();
    window.addEventListener("hashchange", takeToken);
  }
  // What this browser keeps is of one login's key, and drafts end with the login.
  const own = name => `${document.body.dataset.login} ${name}`;
  document.querySelector("form.who")?.addEventListener("submit", () => sessionStorage.clear());
  // A field keeps its draft until its form is sent; a key does what its button says, once; Enter sends a message.
  for (const field of document.querySelectorAll("[data-keep]")) {
    field.value = field.value || sessionStorage.getItem(own(field.dataset.keep)) || "";
    field.addEventListener("input", () => sessionStorage.setItem(own(field.dataset.keep), field.value));
    field.form.addEventListener("submit", () => sessionStorage.removeItem(own(field.dataset.keep)));
  }
  document.querySelector("[autofocus]")?.focus({ preventScroll: true }); // which an address with a fragment leaves out
  let leaving = false;
  window.addEventListener("pageshow", () => { leaving = false; });
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.repeat || leaving) return;
    const field = event.target.closest("input, textarea, select");
    if (field) {
      if (event.key === "Escape") field.blur();
      if (event.key !== "Enter" || event.shiftKey || !field.matches("[data-enter]")) return;
      event.preventDefault();
      return field.form.requestSubmit();
    }
    const button = event.key.length === 1 && document.querySelector(`[data-key="${CSS.escape(event.key.toLowerCase())}"]`);
    if (!button) return;
    event.preventDefault();
    if (button.matches("input")) return button.focus();
    leaving = true;
    button.click();
  });
  if (window.isSecureContext && "serviceWorker" in navigator)
    navigator.serviceWorker.register("/ui/sw.js", { scope: "/ui/" }).catch(() => undefined);
  window.addEventListener("beforeinstallprompt", event => {
    const button = document.getElementById("install");
    if (!button) return;
    event.preventDefault();
    button.hidden = false;
    button.addEventListener("click", () => event.prompt(), { once: true });
  });
})();
