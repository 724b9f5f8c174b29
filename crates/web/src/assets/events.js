// Events: the daemon's decisions, and changes observed while the page is open.

import { byId, h, keyed, setText, words } from "./dom.js";

const time = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export function showEvents(model) {
  const log = byId("log");
  keyed(log, model.events, (event) => event.key,
    (event) => h("li", { "data-kind": event.kind },
      h("time", { datetime: new Date(event.at).toISOString() }, time.format(event.at)),
      h("span", { class: "kind" }, words(event.kind)),
      h("span", { class: "message" }, event.message)),
    () => {});
  log.dataset.none = model.events.length ? "" : "no events yet";
  setText(byId("events-title"), model.events.length ? `Events (${model.events.length})` : "Events");
}
