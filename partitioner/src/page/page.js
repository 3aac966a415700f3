"use strict";
// Fields of a row, as page/mod.rs writes them.
const NAME = 0, OP = 1, PLACEMENT = 2, SEGMENT = 3, CODE = 4, REASON = 5, HELP = 6, COST = 7;
const ROW_HEIGHT = 24, MARGIN = 8;
const COLUMNS = ["node", "operator", "runs", "segment", "code", "cost", "why"];
const SELECTS = [["op", OP, "every operator"], ["runs", PLACEMENT, "everywhere"], ["segment", SEGMENT, "every segment"], ["why", REASON, "every reason"]];

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function time(ns) {
  if (ns === null) return "";
  const us = ns / 1e3;
  return us < 1e3 ? us.toFixed(us < 10 ? 1 : 0) + " us" : us < 1e6 ? (us / 1e3).toFixed(1) + " ms" : (us / 1e6).toFixed(2) + " s";
}

// Reasons differ in their figures only after the colon when a node is placed for cost.
function group(row, field) {
  const text = row[field];
  return field === REASON && text !== null && row[CODE] === "E0901" ? text.split(":")[0] : text;
}

function show(section, wanted) {
  const begun = performance.now();
  const data = JSON.parse(section.querySelector("script").textContent);
  const text = (k) => (k === null ? null : data.texts[k]);
  const rows = data.rows.map((row) => [row[0], text(row[1]), text(row[2]), text(row[3]), text(row[4]), text(row[5]), text(row[6]), row[7]]);
  const haystack = rows.map((row) => [row[NAME], row[OP], row[CODE], row[REASON], row[HELP]].join("\n").toLowerCase());

  const search = element("input", { type: "search", placeholder: "text in name, operator, reason", "data-filter": "text" });
  const selects = SELECTS.map(([name, field, all]) => {
    const counts = new Map();
    for (const row of rows) {
      const key = group(row, field);
      if (key !== null) counts.set(key, (counts.get(key) || 0) + 1);
    }
    const select = element("select", { "data-filter": name }, element("option", { value: "" }, all));
    const keys = [...counts.keys()];
    if (field !== SEGMENT) keys.sort((a, b) => counts.get(b) - counts.get(a) || (a < b ? -1 : 1));
    for (const key of keys) {
      select.append(element("option", { value: key }, `${key.length > 80 ? key.slice(0, 80) + "…" : key} (${counts.get(key)})`));
    }
    return select;
  });
  const count = element("span", { class: "count" });
  section.querySelector(".filters").append(search, ...selects, count);

  const table = section.querySelector(".table"), detail = section.querySelector(".detail");
  const space = element("div", { class: "space" });
  table.append(element("div", { class: "head" }, ...COLUMNS.map((name) => element("span", {}, name))), space);
  let shown = [];

  function draw() {
    const first = Math.max(0, Math.floor(table.scrollTop / ROW_HEIGHT) - MARGIN);
    const last = Math.min(shown.length, first + Math.ceil(table.clientHeight / ROW_HEIGHT) + 2 * MARGIN);
    const made = document.createDocumentFragment();
    for (let k = first; k < last; k++) {
      const row = rows[shown[k]];
      const cells = [row[NAME], row[OP], row[PLACEMENT], row[SEGMENT], row[CODE], time(row[COST]), row[REASON]];
      const line = element("div", { class: "row " + row[PLACEMENT], style: `top:${k * ROW_HEIGHT}px`, "data-row": shown[k] },
        ...cells.map((cell) => element("span", {}, cell === null ? "" : cell)));
      made.append(line);
    }
    space.replaceChildren(made);
  }

  function filter() {
    const needle = search.value.toLowerCase();
    const chosen = selects.map((select) => select.value);
    shown = [];
    rows.forEach((row, k) => {
      const fits = SELECTS.every(([, field], i) => chosen[i] === "" || group(row, field) === chosen[i]);
      if (fits && haystack[k].includes(needle)) shown.push(k);
    });
    space.style.height = shown.length * ROW_HEIGHT + "px";
    table.scrollTop = 0;
    count.textContent = `${shown.length} of ${rows.length} nodes`;
    detail.textContent = "";
    for (const box of section.querySelectorAll(".segment")) box.classList.toggle("chosen", box.dataset.segment === selects[2].value);
    draw();
  }

  let waiting = 0;
  table.addEventListener("scroll", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(draw);
  });
  search.addEventListener("input", filter);
  for (const select of selects) select.addEventListener("change", filter);
  space.addEventListener("click", (event) => {
    const line = event.target.closest(".row");
    if (line === null) return;
    const row = rows[line.dataset.row];
    const lines = [`${row[NAME]} (${row[OP]}): ${row[PLACEMENT]}${row[SEGMENT] === null ? "" : ", " + row[SEGMENT]}`];
    if (row[REASON] !== null) lines.push(`${row[CODE]}: ${row[REASON]}`);
    if (row[HELP] !== null) lines.push("To move it to an engine: " + row[HELP]);
    if (row[COST] !== null) lines.push(`Estimated at ${time(row[COST])}, with the copies that it needs`);
    detail.textContent = lines.join("\n");
  });
  section.addEventListener("click", (event) => {
    const flow = event.target.closest(".flow");
    if (flow !== null) {
      search.value = search.value === flow.dataset.node ? "" : flow.dataset.node;
      filter();
    }
    const box = event.target.closest(".segment");
    if (box === null) return;
    selects[2].value = selects[2].value === box.dataset.segment ? "" : box.dataset.segment;
    filter();
  });
  // A link may carry filters: #text=conv&op=Conv&runs=host&segment=host_0
  search.value = wanted.get("text") || "";
  SELECTS.forEach(([name], i) => { selects[i].value = wanted.get(name) || ""; if (selects[i].selectedIndex < 0) selects[i].value = ""; });
  filter();
  section.dataset.ms = Math.ceil(performance.now() - begun);
}

const wanted = new URLSearchParams(location.hash.slice(1));
for (const section of document.querySelectorAll("section")) show(section, wanted);
