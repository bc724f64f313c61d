// Browsers refuse web workers on pages opened from disk; the search then runs in a hidden frame.
if (location.protocol === "file:") {
  // The theme's search worker looks for this name.
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = this.onerror = this.onmessageerror = null;
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.frame = frame.contentWindow;
      addEventListener("message", (event) => {
        if (event.source !== this.frame) return;
        const message = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(message);
        if (this.onmessage) this.onmessage(message);
      });
      const page = this.frame.document;
      page.open();
      page.write(
        "<script>" +
          "var postMessage = (data) => parent.dispatchEvent(new MessageEvent('message', { data, source: window }));" +
          "<" + "/script><script src='" + url + "'><" + "/script>"
      );
      this.ready = new Promise((loaded) => frame.addEventListener("load", loaded));
      page.close();
    }

    postMessage(data) {
      this.ready.then(() => this.frame.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.frameElement.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
