// The service worker of the pages: keeps static files and the page that says "no network"; shows notifications.
// It never keeps a run, an answer or a form: those are asked of the server each time. STATIC is put before this text.
const OFFLINE = "/ui/offline";
const CACHE = `shikisha ${STATIC.join(" ")}`;

self.addEventListener("install", event => {
  event.waitUntil(caches.open(CACHE).then(cache => cache.addAll([...STATIC, OFFLINE])).then(() => self.skipWaiting()));
});
self.addEventListener("activate", event => {
  const old = names => Promise.all(names.filter(name => name.startsWith("shikisha ") && name !== CACHE)
    .map(name => caches.delete(name)));
  event.waitUntil(caches.keys().then(old).then(() => self.clients.claim()));
});
self.addEventListener("fetch", event => {
  const { request } = event, path = new URL(request.url).pathname;
  if (request.method !== "GET") return;
  if (path.startsWith("/ui/static/"))
    event.respondWith(caches.match(request).then(kept => kept || fetch(request)));
  else if (request.mode === "navigate")
    event.respondWith(fetch(request).catch(() => caches.match(OFFLINE)));
});
self.addEventListener("push", event => {
  let told = {};
  try { told = event.data.json(); } catch { /* an empty or foreign message still says that something waits */ }
  const page = typeof told.page === "string" && told.page.startsWith("/ui/") ? told.page : "/ui/approvals";
  event.waitUntil(self.registration.showNotification(String(told.title || "Something waits for you"), {
    body: String(told.body || ""), tag: String(told.tag || "shikisha"), data: { page }, requireInteraction: true,
  }));
});
self.addEventListener("notificationclick", event => {
  event.notification.close();
  event.waitUntil(self.clients.openWindow(event.notification.data.page));
});
