/* A websocket to the lab that lasts: opened again whenever it is lost, later each time, until the server says that the person may not listen. */

const OVER = [4401, 4404]; // signed out; gone, or no longer theirs
const FIRST_WAIT = 500; // ms; doubles with each attempt in vain
const LONGEST_WAIT = 15000;
const SILENT = 30000; // a socket is replaced after so long without a message: the server sends one every few seconds, whatever happens
const SUCCESSOR = 10000; // and those that follow it, as long as they say nothing either, after so long

export class LabSocket {
  /* ``onMessage`` gets the parsed objects; ``onOpen`` and ``onClose`` hear of the connection, ``onClose`` with the code once the server has refused it. */
  constructor(path, { onMessage, onOpen = () => {}, onClose = () => {} }) {
    Object.assign(this, { path, onMessage, onOpen, onClose });
    this.socket = null;
    this.attempts = 0;
    this.timer = 0;
    this.refused = 0;
    this.hasOpened = false; // ever
    this.heardAt = Date.now();
    this.replacedAt = 0;
    setInterval(() => this.replaceSilent(), 1000);
  }

  get isOpen() { return this.socket?.readyState === WebSocket.OPEN; }

  connect() {
    clearTimeout(this.timer);
    if (this.refused || this.socket) return;
    this.heardAt ||= Date.now();
    const own = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${this.path}`);
    this.socket = own;
    own.onopen = () => { if (own === this.socket) { this.hasOpened = true; this.onOpen(); } };
    own.onmessage = (event) => { if (own === this.socket) this.receive(event.data); };
    own.onclose = (event) => { if (own === this.socket) this.lose(event.code); };
  }

  /* Closes it for now; connect() opens another one. */
  disconnect() {
    clearTimeout(this.timer);
    const old = this.socket;
    this.socket = null;
    this.heardAt = 0; // silence counts from the next connection on
    old?.close();
  }

  /* Another one at once, whatever this one was about to do. */
  replace() {
    const heardAt = this.heardAt;
    this.disconnect();
    this.heardAt = heardAt;
    this.attempts = 0;
    this.connect();
  }

  send(message) { if (this.isOpen) this.socket.send(JSON.stringify(message)); }

  receive(text) {
    let message;
    try { message = JSON.parse(text); } catch { return; }
    if (!message || typeof message !== "object") return;
    this.heardAt = Date.now();
    this.attempts = 0;
    this.onMessage(message);
  }

  lose(code) {
    this.socket = null;
    if (OVER.includes(code)) this.refused = code;
    else this.timer = setTimeout(() => this.connect(), this.nextWait());
    this.onClose(this.refused);
  }

  /* With jitter, so that a restarted server is not met by all pages at once. */
  nextWait() {
    const wait = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** this.attempts);
    this.attempts += 1;
    return Math.max(FIRST_WAIT, wait * (0.5 + Math.random() / 2));
  }

  replaceSilent() {
    const now = Date.now();
    if (!this.socket || now - this.heardAt <= SILENT || now - this.replacedAt <= SUCCESSOR) return;
    this.replacedAt = now;
    this.replace();
  }
}
