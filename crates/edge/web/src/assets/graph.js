// Draws a DAG: layers by longest path from the entry, edges as curves.

import { id, spot, svg } from "./dom.js";

const BOX = { width: 128, height: 46 };
const GAP = { along: 42, across: 18 };

/** The layer of each node: length of the longest path to it. */
export function layers(dag) {
  const layer = new Map(dag.nodes.map((node) => [node.id, 0]));
  // The graph is acyclic, so as many rounds as nodes are enough for any order of edges.
  for (let round = 0; round < dag.nodes.length; round += 1) {
    let moved = false;
    for (const [from, to] of dag.edges) {
      if (layer.get(to) <= layer.get(from)) {
        layer.set(to, layer.get(from) + 1);
        moved = true;
      }
    }
    if (!moved) break;
  }
  return layer;
}

/**
 * The rows of the drawing. An edge across several layers reserves a slot in each layer between, so that
 * it passes beside nodes and not behind them. Rows are ordered by the mean position of their predecessors.
 */
function rowsOf(dag) {
  const layer = layers(dag);
  const rows = [];
  for (const node of dag.nodes) (rows[layer.get(node.id)] ??= []).push(node.id);
  const ways = dag.edges.map(([from, to]) => {
    const way = [from];
    for (let depth = layer.get(from) + 1; depth < layer.get(to); depth += 1) {
      const between = `${from} ${to} ${depth}`;
      rows[depth].push(between);
      way.push(between);
    }
    return [...way, to];
  });
  for (let depth = 1; depth < rows.length; depth += 1) {
    const before = rows[depth - 1];
    const weight = (id) => {
      const from = ways.filter((way) => way.indexOf(id) > 0).map((way) => way[way.indexOf(id) - 1]);
      const places = from.map((other) => before.indexOf(other)).filter((at) => at >= 0);
      return places.length ? places.reduce((a, b) => a + b) / places.length : 0;
    };
    rows[depth] = rows[depth].map((id) => [weight(id), id]).sort(([a], [b]) => a - b).map(([, id]) => id);
  }
  return { rows, ways, nodes: new Set(dag.nodes.map((node) => node.id)) };
}

/** Coordinates of everything, and the total size. */
function place(dag, upright) {
  const { rows, ways, nodes } = rowsOf(dag);
  const along = upright ? BOX.height : BOX.width;
  const side = (id) => (nodes.has(id) ? (upright ? BOX.width : BOX.height) : GAP.across);
  const wide = (row) => row.reduce((sum, id) => sum + side(id), 0) + (row.length - 1) * GAP.across;
  const extent = Math.max(...rows.map(wide));
  const at = new Map();
  rows.forEach((row, depth) => {
    let across = (extent - wide(row)) / 2;
    const forth = depth * (along + GAP.along);
    for (const id of row) {
      at.set(id, upright ? { x: across, y: forth } : { x: forth, y: across });
      across += side(id) + GAP.across;
    }
  });
  const length = rows.length * along + (rows.length - 1) * GAP.along;
  const paths = ways.map((way) => path(way.map((id) => ends(at.get(id), nodes.has(id), upright)), upright));
  return { at, paths, width: upright ? extent : length, height: upright ? length : extent };
}

/** The points where edges enter and leave a slot. */
function ends({ x, y }, isNode, upright) {
  const half = isNode ? (upright ? BOX.width : BOX.height) / 2 : GAP.across / 2;
  return upright
    ? [{ x: x + half, y }, { x: x + half, y: y + BOX.height }]
    : [{ x, y: y + half }, { x: x + BOX.width, y: y + half }];
}

function path(places, upright) {
  let text = "";
  places.forEach(([into, out], nth) => {
    if (nth === 0) text += `M${out.x} ${out.y}`;
    else {
      const a = places[nth - 1][1];
      const [p, q] = upright
        ? [{ x: a.x, y: (a.y + into.y) / 2 }, { x: into.x, y: (a.y + into.y) / 2 }]
        : [{ x: (a.x + into.x) / 2, y: a.y }, { x: (a.x + into.x) / 2, y: into.y }];
      text += `C${p.x} ${p.y} ${q.x} ${q.y} ${into.x} ${into.y}`;
      if (nth < places.length - 1) text += `L${out.x} ${out.y}`;
    }
  });
  return text;
}

/** The drawing. `point` is called with the nodes and regions under the pointer. */
export function draw(dag, places, upright, point) {
  const { at, paths, width, height } = place(dag, upright);
  const margin = 6;
  const marker = svg("marker", {
    id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto",
  }, svg("path", { d: "M0 0L8 4L0 8z", class: "tip" }));
  const edges = paths.map((d) => svg("path", { class: "edge", d, "marker-end": "url(#tip)" }));
  const nodes = dag.nodes.map((node) => {
    const { x, y } = at.get(node.id);
    const regions = places.get(node.id) ?? [];
    const on = () => point([node.id], regions);
    const where = regions.length ? regions.map(spot).join(", ") : "not mapped";
    const nt = id(node.nt);
    return svg("g", {
      class: "node", tabindex: 0, role: "img", "data-nodes": node.id,
      "aria-label": `${node.id}, ${nt}, ${regions.length ? "region " : ""}${where}`,
      transform: `translate(${x} ${y})`, onmouseenter: on, onfocus: on,
    },
    svg("rect", { width: BOX.width, height: BOX.height, rx: 9 }),
    svg("text", { x: BOX.width / 2, y: 19, class: "what" }, node.id),
    svg("text", { x: BOX.width / 2, y: 36, class: "where" }, where));
  });
  const view = `${-margin} ${-margin} ${width + 2 * margin} ${height + 2 * margin}`;
  return svg("svg", {
    viewBox: view, width: width + 2 * margin, height: height + 2 * margin,
    role: "group", "aria-label": `Graph of ${id(dag.name)}`,
  }, svg("defs", {}, marker), edges, nodes);
}
