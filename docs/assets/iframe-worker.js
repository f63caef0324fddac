// Browsers start no worker for a page that was opened as a file. The search of the manual then runs in a hidden frame.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    this.ready = new Promise((resolve) => { this.frame.onload = resolve; });
    document.body.appendChild(this.frame);
    const own = this.frame.contentWindow;
    own.answer = (data) => {
      const event = new MessageEvent("message", {data});
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    };
    own.document.open();
    own.document.write(`<script>
      postMessage = (data) => setTimeout(() => answer(data));
      importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((resolve, reject) => {
        const script = document.createElement("script");
        Object.assign(script, {src: url, onload: resolve, onerror: reject});
        document.head.appendChild(script);
      })), Promise.resolve());
    </script><script src="${url}"></script>`);
    own.document.close();
  }
  postMessage(data) {
    this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", {data})));
  }
  terminate() {
    this.frame.remove();
  }
}
if (location.protocol === "file:") window.Worker = FrameWorker;
