// Events: the daemon's decisions, and changes observed while the page is open.

import { byId, dagUrl, h, id, keyed, regionUrl, setText, short, words } from "./dom.js";

const time = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
/** What each choice of the filter shows. */
const SHOWN = { all: ["INFO", "WARNING", "ERROR"], warnings: ["WARNING", "ERROR"], errors: ["ERROR"] };

/** What an event is about: its DAG, its card, and its regions, as links where the page shows them. */
function about(event) {
  const region = (number) => {
    const name = `${event.card}/regions/${number}`;
    return h("a", { class: "chip", href: regionUrl(name) }, `${id(event.card)}/${number}`);
  };
  const regions = event.regions ?? [];
  return [
    event.dag && h("a", { class: "chip", href: dagUrl(event.dag) }, short(event.dag)),
    event.card && regions.length === 0 && h("span", { class: "chip" }, id(event.card)),
    event.card && regions.map(region),
  ];
}

export function showEvents(model, severity) {
  const log = byId("log");
  const events = model.events.filter((event) => SHOWN[severity].includes(event.severity ?? "INFO"));
  keyed(log, events, (event) => event.key,
    (event) => h("li", { "data-severity": event.severity ?? "INFO" },
      h("time", { datetime: new Date(event.at).toISOString() }, time.format(event.at)),
      h("span", { class: "kind" }, words(event.kind)),
      h("span", { class: "message" }, event.message, " ", about(event))),
    () => {});
  log.dataset.none = model.events.length
    ? `none of the last ${model.events.length} events is ${severity === "errors" ? "an error" : "a warning or an error"}`
    : "no events yet";
  const all = model.events.length;
  const shown = events.length === all ? `${all}` : `${events.length} of ${all}`;
  setText(byId("events-title"), all ? `Events (${shown})` : "Events");
}
