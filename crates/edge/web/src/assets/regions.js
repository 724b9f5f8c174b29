// Cards, and their regions: one tile per region, coloured by its state or by the owner of its users.

import {
  byId, cardOf, cardUrl, count, dagUrl, h, id, keyed, rate, remake, setAttr, setText, short, spot,
  tenantOf, words,
} from "./dom.js";

const STATES = ["FREE", "RECONFIGURING", "ACTIVE", "DRAINING", "VICTIM", "FAULTY", "UNKNOWN"];
const HEALTH = { OK: "healthy", IMPAIRED: "impaired", LOST: "lost", RECOVERING: "recovering" };
/** With more cards than this the page has a list of them, and shows one whole. */
const WHOLE_MAX = 4;
/** Most owners in the legend of colours. */
const LEGEND_MAX = 24;

/** Distinct owners of a region's users. */
const owners = (region) => [...new Set(region.users.map((user) => tenantOf(user.dag)))].sort();

const load = (slot) => (slot.maxBps ? Math.round((slot.reservedBps / slot.maxBps) * 100) : 0);
const fullest = (region) => Math.max(0, ...region.slots.map(load));

/** A card in numbers: its own regions and the DAGs on it. */
function numbers(model, card) {
  const regions = model.regionsOf(card.name);
  const of = (...states) => regions.filter((region) => states.includes(region.state));
  const dags = model.dagsOf(card.name);
  const cordoned = regions.filter((region) => region.cordoned).length;
  const isClosed = regions.length > 0 && cordoned === regions.length;
  return {
    regions: regions.length,
    active: of("ACTIVE").length,
    // Nothing new is placed in cordoned regions.
    available: of("FREE", "VICTIM").filter((region) => !region.cordoned).length,
    faulty: of("FAULTY").length,
    cordoned,
    dags: dags.length,
    ready: dags.filter((dag) => dag.state === "READY").length,
    health: [HEALTH[card.health] ?? words(card.health), isClosed && "cordoned"].filter(Boolean).join(", "),
    mark: isClosed && card.health === "OK" ? "CORDONED" : card.health,
  };
}

/** The cards, those with a trouble first. */
function cardsInOrder(model) {
  const trouble = (card) => (card.health === "OK" ? 0 : 1);
  return [...model.cards.values()].sort((a, b) =>
    trouble(b) - trouble(a) || a.name.localeCompare(b.name, "en", { numeric: true }));
}

/** The cards that are shown whole: all where there are few, else the one that is chosen. */
function wholeCards(model, cards) {
  if (cards.length <= WHOLE_MAX) return cards;
  return [cards.find((card) => card.name === model.selectedCard) ?? cards[0]];
}

export function showCards(model) {
  const cards = cardsInOrder(model);
  const empty = byId("no-cards");
  empty.hidden = cards.length > 0;
  if (!cards.length) {
    setText(empty, "There is no card yet. Cards are in the daemon's settings; `snicctl card list` shows "
      + "them, and the log says why one cannot be opened.");
  }
  const list = byId("card-list");
  list.hidden = cards.length <= WHOLE_MAX;
  const whole = wholeCards(model, cards);
  keyed(list, list.hidden ? [] : cards, (card) => card.name,
    (card) => h("li", {}, h("a", { href: cardUrl(card.name) },
      h("span", { class: "name" }, id(card.name)), h("span", { class: "pill" }), h("span", { class: "muted" }))),
    (item, card) => {
      const [, health, text] = item.firstElementChild.children;
      const of = numbers(model, card);
      setAttr(item.firstElementChild, "aria-current", card === whole[0] ? "true" : null);
      setAttr(health, "data-health", of.mark);
      setText(health, of.health);
      setText(text, [
        `${of.active} of ${of.regions} active`, `${of.available} available`,
        of.cordoned && `${of.cordoned} cordoned`, of.faulty && `${of.faulty} faulty`,
        `${of.ready} of ${of.dags} DAGs ready`,
      ].filter(Boolean).join(" · "));
    });
  keyed(byId("cards"), whole, (card) => card.name, () => h("article", { class: "card" }),
    (element, card) => {
      const of = numbers(model, card);
      remake(element, [card, of], () => summary(card, of));
    });
}

function summary(card, of) {
  const fact = (value, what, mark) =>
    h("div", { class: mark ? `fact ${mark}` : "fact" }, h("dd", {}, value), h("dt", {}, what));
  return [
    h("header", {},
      h("h2", {}, id(card.name)),
      h("p", { class: "pill", "data-health": of.mark }, of.health),
      h("p", { class: "muted" }, [card.model, card.driver].filter(Boolean).join(" · "))),
    card.message && h("p", { class: "warning" }, card.message),
    h("dl", { class: "facts" },
      fact(`${of.active} / ${of.regions}`, "regions active"),
      fact(`${of.available}`, "regions available"),
      of.cordoned > 0 && fact(`${of.cordoned}`, "regions cordoned", "warn"),
      fact(`${of.ready} / ${of.dags}`, "DAGs ready here", of.ready < of.dags && "warn"),
      fact(count(card.reconfigurations), "reconfigurations"),
      fact(count(card.packetsOut), "packets out"),
      fact(count(card.drops), "packets dropped"),
      fact(count(card.errors), "packets misrouted", card.errors > 0 && "bad")),
  ];
}

export function showLegend(model, colour) {
  const regions = wholeCards(model, cardsInOrder(model)).flatMap((card) => model.regionsOf(card.name));
  const tenants = () => [...new Set(regions.flatMap(owners))].sort().slice(0, LEGEND_MAX);
  const entries = colour === "owner"
    ? tenants().map((tenant) => [tenant, model.colour(tenant)])
    : STATES.filter((state) => regions.some((region) => region.state === state))
      .map((state) => [words(state), `state-${state.toLowerCase()}`]);
  remake(byId("legend"), entries, () =>
    entries.map(([name, mark]) => h("li", {}, h("span", { class: `swatch ${mark}` }), name)));
}

export function showMap(model, colour) {
  keyed(
    byId("map"),
    wholeCards(model, cardsInOrder(model)),
    (card) => card.name,
    (card) => h("div", { class: "card-map" },
      h("h3", {}, `Regions of ${id(card.name)}`),
      h("div", { class: "tiles", role: "toolbar", "aria-label": `Regions of ${id(card.name)}`, onkeydown: step }),
      h("p", { class: "muted" })),
    (map, card) => {
      const [, grid, empty] = map.children;
      const regions = model.regionsOf(card.name);
      empty.hidden = regions.length > 0;
      setText(empty, regions.length ? "" : "No region of it is known: it has processors only, or was not read yet.");
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
  const select = () => model.selectRegion(model.selectedRegion === region.name ? null : region.name);
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
  setAttr(button, "class", `tile ${mark}${lit ? " lit" : ""}${region.cordoned ? " cordoned" : ""}`);
  setAttr(button, "data-state", region.state);
  setAttr(button, "aria-pressed", region.name === model.selectedRegion);
  setAttr(button, "aria-label", describe(region, who));
  setText(number, spot(region.name));
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
  const parts = [`Region ${spot(region.name)}`, words(region.state)];
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
  const name = model.selectedRegion;
  const region = model.regions.get(name);
  remake(byId("region"), [name, region], () => {
    if (region) return detail(model, region);
    return name && h("p", { class: "muted" }, `There is no region ${spot(name)}.`);
  });
}

function detail(model, region) {
  const users = (at) => region.users.filter((user) => user.slots.includes(at));
  const link = (user) => h("a", {
    class: `chip ${model.colour(tenantOf(user.dag))}`, href: dagUrl(user.dag),
  }, `${short(user.dag)} ${rate(user.bps)}`);
  const rows = region.slots.map((slot, at) =>
    h("tr", {},
      h("th", { scope: "row" }, id(slot.nt)),
      h("td", {}, `${load(slot)} %`),
      h("td", {}, `${rate(slot.reservedBps)} of ${rate(slot.maxBps)}`),
      h("td", {}, users(at).map(link))));
  const name = `${id(cardOf(region.name))} region ${id(region.name)}`;
  return [
    h("h3", {}, `${name}: ${words(region.state)}${region.cordoned ? ", cordoned" : ""}`),
    h("p", { class: "muted" }, [
      region.bitstream ? id(region.bitstream) : "nothing loaded",
      `${count(region.reconfigurations)} reconfigurations`,
      region.failures ? `${region.failures} failures` : "",
      region.users.length ? "" : "no DAG uses it",
    ].filter(Boolean).join(" · ")),
    region.cordoned && h("p", { class: "warning" },
      `Nothing new is placed here. End it with \`snicctl region undrain ${spot(region.name)}\`.`),
    region.error && h("p", { class: "warning" }, region.error),
    rows.length > 0 && h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, ["task", "load", "reserved", "used by"].map((head) =>
        h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows))),
  ];
}
