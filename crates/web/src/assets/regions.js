// The map: one tile per region, coloured by its state or by the owner of its users.

import {
  byId, count, h, id, keyed, rate, remake, setAttr, setText, short, tenantOf, words,
} from "./dom.js";

const STATES = ["FREE", "RECONFIGURING", "ACTIVE", "DRAINING", "VICTIM", "FAULTY", "UNKNOWN"];
const HEALTH = { OK: "healthy", IMPAIRED: "impaired", LOST: "lost", RECOVERING: "recovering" };

/** Distinct owners of a region's users. */
const owners = (region) => [...new Set(region.users.map((user) => tenantOf(user.dag)))].sort();

const load = (slot) => (slot.maxBps ? Math.round((slot.reservedBps / slot.maxBps) * 100) : 0);
const fullest = (region) => Math.max(0, ...region.slots.map(load));

export function showCards(model) {
  keyed(
    byId("cards"),
    [...model.cards.values()].sort((a, b) => a.name.localeCompare(b.name)),
    (card) => card.name,
    () => h("article", { class: "card" }),
    (element, card) => {
      const regions = model.regionsOf(card.name);
      const states = STATES.map((state) => [state, regions.filter((r) => r.state === state).length]);
      const dags = [...model.dags.values()];
      const ready = dags.filter((dag) => dag.state === "READY").length;
      remake(element, [card, states, dags.length, ready], () => summary(card, states, dags, ready));
    },
  );
}

function summary(card, states, dags, ready) {
  const fact = (value, what, mark) =>
    h("div", { class: mark ? `fact ${mark}` : "fact" }, h("dd", {}, value), h("dt", {}, what));
  const number = (state) => states.find(([name]) => name === state)?.[1] ?? 0;
  const all = states.reduce((sum, [, some]) => sum + some, 0);
  return [
    h("header", {},
      h("h2", {}, id(card.name)),
      h("p", { class: "pill", "data-health": card.health }, HEALTH[card.health] ?? words(card.health)),
      h("p", { class: "muted" }, [card.model, card.driver].filter(Boolean).join(" · "))),
    card.message && h("p", { class: "warning" }, card.message),
    h("dl", { class: "facts" },
      fact(`${number("ACTIVE")} / ${all}`, "regions active"),
      fact(`${number("FREE") + number("VICTIM")}`, "regions available"),
      fact(`${ready} / ${dags.length}`, "DAGs ready", ready < dags.length && "warn"),
      fact(count(card.reconfigurations), "reconfigurations"),
      fact(count(card.packetsOut), "packets out"),
      fact(count(card.drops), "packets dropped"),
      fact(count(card.errors), "packets misrouted", card.errors > 0 && "bad")),
  ];
}

export function showLegend(model, colour) {
  const entries = colour === "owner"
    ? model.tenants().map((tenant) => [tenant, model.colour(tenant)])
    : STATES.filter((state) => [...model.regions.values()].some((r) => r.state === state))
      .map((state) => [words(state), `state-${state.toLowerCase()}`]);
  remake(byId("legend"), entries, () =>
    entries.map(([name, mark]) => h("li", {}, h("span", { class: `swatch ${mark}` }), name)));
}

export function showMap(model, colour) {
  const cards = [...model.cards.keys()].sort();
  keyed(
    byId("map"),
    cards,
    (card) => card,
    (card) => h("div", { class: "tiles", role: "toolbar", "aria-label": `Regions of ${id(card)}`, onkeydown: step }),
    (grid, card) => {
      const regions = model.regionsOf(card);
      const current = regions.find((region) => region.name === model.selectedRegion) ?? regions[0];
      keyed(grid, regions, (region) => region.name, (region) => tile(model, region), (button, region) => {
        const here = document.activeElement?.parentElement === grid;
        if (!here) setAttr(button, "tabindex", region === current ? 0 : -1);
        update(model, button, region, colour);
      });
    },
  );
}

function tile(model, region) {
  const select = () => model.selectRegion(region.name);
  return h("button", { class: "tile", type: "button", tabindex: -1, onclick: select },
    h("span", { class: "number" }), h("span", { class: "state" }), h("span", { class: "content" }),
    h("span", { class: "slots", "aria-hidden": "true" }), h("span", { class: "owners" }));
}

function update(model, button, region, colour) {
  const [number, state, content, slots, chips] = button.children;
  const who = owners(region);
  const mark = colour === "owner"
    ? who.length ? model.colour(who[0]) : "owner-none"
    : `state-${region.state.toLowerCase()}`;
  const lit = model.lit.has(region.name);
  setAttr(button, "class", `tile ${mark}${lit ? " lit" : ""}`);
  setAttr(button, "data-state", region.state);
  setAttr(button, "aria-pressed", region.name === model.selectedRegion);
  setAttr(button, "aria-label", describe(region, who));
  setText(number, id(region.name));
  setText(state, region.cordoned ? `${words(region.state)}, cordoned` : words(region.state));
  setText(content, region.bitstream ? id(region.bitstream) : "");
  keyed(slots, region.slots.map((slot, at) => [slot, at]), ([, at]) => at,
    () => h("span", { class: "slot" }, h("span", { class: "level" })),
    (bar, [slot]) => {
      bar.firstElementChild.style.height = `${Math.min(100, load(slot))}%`;
    });
  keyed(chips, who, (tenant) => tenant, () => h("span", {}),
    (chip, tenant) => {
      setAttr(chip, "class", `chip ${model.colour(tenant)}`);
      setText(chip, tenant);
    });
}

function describe(region, who) {
  const parts = [`Region ${id(region.name)}`, words(region.state)];
  if (region.cordoned) parts.push("cordoned");
  if (region.bitstream) parts.push(`contains ${id(region.bitstream)}`);
  if (region.slots.length) parts.push(`fullest task ${fullest(region)} %`);
  if (who.length) parts.push(`used by ${who.join(", ")}`);
  return parts.join(", ");
}

/** Arrow keys move over the tiles as laid out. */
function step(event) {
  const tiles = [...event.currentTarget.children];
  const at = tiles.indexOf(document.activeElement);
  if (at < 0) return;
  const columns = tiles.filter((tile) => tile.offsetTop === tiles[0].offsetTop).length;
  const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
  const to = { Home: 0, End: tiles.length - 1 }[event.key] ?? at + (by[event.key] ?? 0);
  if (to === at || !tiles[to]) return;
  event.preventDefault();
  tiles[at].tabIndex = -1;
  tiles[to].tabIndex = 0;
  tiles[to].focus();
}

export function showRegion(model) {
  const region = model.regions.get(model.selectedRegion);
  remake(byId("region"), region ?? null, () => region && detail(model, region));
}

function detail(model, region) {
  const users = (at) => region.users.filter((user) => user.slots.includes(at));
  const open = (dag) => () => {
    model.selectDag(dag);
    byId("dags").scrollIntoView();
  };
  const rows = region.slots.map((slot, at) =>
    h("tr", {},
      h("th", { scope: "row" }, id(slot.nt)),
      h("td", {}, `${load(slot)} %`),
      h("td", {}, `${rate(slot.reservedBps)} of ${rate(slot.maxBps)}`),
      h("td", {}, users(at).map((user) =>
        h("button", { type: "button", class: `chip ${model.colour(tenantOf(user.dag))}`, onclick: open(user.dag) },
          `${short(user.dag)} ${rate(user.bps)}`)))));
  return [
    h("h3", {}, `Region ${id(region.name)}: ${words(region.state)}`),
    h("p", { class: "muted" }, [
      region.bitstream ? id(region.bitstream) : "nothing loaded",
      `${count(region.reconfigurations)} reconfigurations`,
      region.failures ? `${region.failures} failures` : "",
    ].filter(Boolean).join(" · ")),
    region.error && h("p", { class: "warning" }, region.error),
    rows.length > 0 && h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, ["task", "load", "reserved", "used by"].map((head) =>
        h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows))),
  ];
}
