// Usage of tenants in the last day, and how their promises were kept in 30 days.

import { byId, cardOf, dagUrl, h, id, rate, remake, setText, short, words } from "./dom.js";

/** Most tenants shown: each is asked for once a minute. */
const SHOWN = 8;
const DAY = 86400;
const HOUR = 3600;
/** Most outages listed, of all tenants that are shown. */
const OUTAGES = 12;

const when = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

const SIZES = [[1e15, "PB"], [1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]];

/** Bytes as people say them. */
function size(bytes) {
  const [unit, word] = SIZES.find(([unit]) => bytes >= unit) ?? [1, "B"];
  const value = bytes / unit;
  return `${unit === 1 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${word}`;
}

/** Milliseconds as people say them. */
function time(millis) {
  const seconds = Math.abs(millis) / 1000;
  const [unit, word] = [[DAY, "d"], [HOUR, "h"], [60, "min"]].find(([unit]) => seconds >= unit) ?? [1, "s"];
  const value = seconds / unit;
  return `${millis < 0 ? "−" : ""}${value >= 10 || Number.isInteger(value) ? Math.round(value) : value.toFixed(1)} ${word}`;
}

/** Millionths near one as a percentage: never rounded up to what was not kept. */
const kept = (ppm) => `${(Math.floor(ppm / 10) / 1000).toFixed(3)} %`;

function burn(account, seconds) {
  const found = account.burns.find(([window]) => window === seconds);
  return found ? (found[1] / 1000).toFixed(1) : "–";
}

function budget({ budget }) {
  if (!budget) return "–";
  const limit = budget.micros / 1e6;
  if (budget.level === "UNKNOWN") return `unknown of ${limit}: no prices`;
  return `${Number(budget.spent).toFixed(2)} of ${limit} ${budget.currency}${budget.level === "WITHIN" ? "" : ` (${words(budget.level)})`}`;
}

const HEADS = ["tenant", "promised, mean", "came", "served", "packets dropped", "regions × time", "promise kept, 30 days",
  "objective", "may still be broken", "burn rate, 1 h", "not known", "spent this month"];

function row(account) {
  const known = account.promiseMillis - account.unknownMillis;
  return [
    rate(account.promisedKbit * 1000 / DAY), size(account.bytesIn), size(account.bytesServed), String(account.packetsDropped),
    time(account.regionMillis), known > 0 ? kept(account.availabilityPpm) : "–", kept(account.objectivePpm),
    known > 0 ? time(account.budgetLeftMillis) : "–", burn(account, HOUR), time(account.unknownMillis + account.gapMillis),
    budget(account),
  ];
}

function outage([dag, card, cause, from, to]) {
  return h("li", {}, `${when.format(from)}, ${time(to - from)}: `,
    dag ? h("a", { class: "chip", href: dagUrl(dag) }, short(dag)) : "DAGs without accounts of their own",
    ` ${words(cause)} on ${id(cardOf(card))}`);
}

/** Shows the tenants that hold most of the cards. */
export function showAccounts(model) {
  const tenants = model.largestTenants();
  const shown = tenants.slice(0, SHOWN);
  for (const tenant of shown) model.loadAccount(tenant);
  const accounts = shown.map((tenant) => model.accounts.get(tenant)).filter(Boolean);
  byId("accounts").hidden = accounts.length === 0;
  const rows = accounts.map((account) => [account, id(account.name), ...row(account)]);
  remake(byId("account-table"), rows.map(([, ...cells]) => cells), () => [
    h("thead", {}, h("tr", {}, HEADS.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, rows.map(([account, tenant, ...cells]) =>
      h("tr", account.budgetLeftMillis < 0 ? { class: "warning" } : {},
        h("th", { scope: "row" }, tenant), cells.map((cell) => h("td", {}, cell))))),
  ]);
  const outages = accounts.flatMap((account) => account.outages).sort((a, b) => b[3] - a[3]).slice(0, OUTAGES);
  remake(byId("outages"), outages, () => outages.map(outage));
  const more = tenants.length - shown.length;
  setText(byId("more-accounts"), more > 0 ? `and ${more} more: \`snicctl usage get\`, \`snicctl usage slo\`` : "");
}
