// Keeps the whole page, so it works without a network after the first load. VERSION and FILES are put before this text.
self.addEventListener("install", event => {
  event.waitUntil(caches.open(VERSION).then(cache => cache.addAll(FILES)).then(() => self.skipWaiting()));
});
self.addEventListener("activate", event => {
  const old = names => Promise.all(names.filter(name => name !== VERSION).map(name => caches.delete(name)));
  event.waitUntil(caches.keys().then(old).then(() => self.clients.claim()));
});
self.addEventListener("fetch", event => {
  if (event.request.method === "GET" && new URL(event.request.url).origin === location.origin)
    event.respondWith(caches.match(event.request, { ignoreSearch: true }).then(kept => kept || fetch(event.request)));
});
