// The page: renders the model when it changes, and handles keys.

import { byId, setAttr, setText } from "./dom.js";
import { showAccounts } from "./accounts.js";
import { showCharts } from "./charts.js";
import { clearHighlight, listKeys, showDag, showList } from "./dags.js";
import { showEvents } from "./events.js";
import { model } from "./model.js";
import { showCards, showLegend, showMap, showRegion } from "./regions.js";

const LINK = { waiting: "connecting", live: "live", lost: "no answer, reconnecting" };

const colour = () => document.querySelector("input[name=colour]:checked").value;
const filter = () => byId("filter").value.trim().toLowerCase();
const severity = () => document.querySelector("input[name=severity]:checked").value;
const span = () => Number(document.querySelector("input[name=span]:checked").value) * 60000;

function show() {
  const link = byId("link");
  setText(link, (model.link === "lost" && model.trouble) || LINK[model.link]);
  setAttr(link, "data-state", model.link);
  // The last state stays visible until the daemon has sent everything again.
  if (!model.ready && model.link !== "live") return;
  showCards(model);
  showLegend(model, colour());
  showMap(model, colour());
  showRegion(model);
  showList(model, filter());
  showDag(model);
  showCharts(model, span());
  showAccounts(model);
  showEvents(model, severity());
}

/** The host of a fleet whose page this is, by its address; none at a daemon. */
const host = location.pathname.match(/^\/hosts\/([^/]+)\/$/)?.[1];
if (host) {
  document.title = `snic ${host}`;
  const back = byId("hosts");
  back.hidden = false;
  setText(back, `Hosts / ${host}`);
}

model.watch(show);
for (const input of document.querySelectorAll("input")) {
  input.addEventListener("input", () => model.changed());
}
byId("dag-list").addEventListener("keydown", (event) => listKeys(model, event));
byId("dag").addEventListener("mouseleave", () => clearHighlight(model));
/** Shows what the address says: links within the page, ones that somebody was sent, and the way back. */
function follow() {
  const part = model.follow(location.hash);
  if (part) byId(part).scrollIntoView();
}
addEventListener("hashchange", follow);
follow();
addEventListener("resize", () => model.changed());
addEventListener("keydown", (event) => {
  const typing = event.target instanceof HTMLInputElement && event.target.type === "search";
  if (event.key === "Escape") {
    clearHighlight(model);
    if (model.selectedRegion) model.selectRegion(null);
    if (typing) {
      byId("filter").value = "";
      model.changed();
    }
  } else if (event.key === "/" && !typing) {
    event.preventDefault();
    byId("filter").focus();
  }
});
model.start();
