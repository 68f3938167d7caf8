// The picture of a partition's log: batches to scale, transactions, markers, and the offsets that move.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const KEPT = 400, HEIGHT = 290, TOP = 78, FLOOR = 232, EDGE = 14;
  const picture = document.getElementById("picture"), panel = document.getElementById("batch");
  const state = document.getElementById("log-state"), followButton = document.getElementById("follow");
  const place = `${encodeURIComponent(picture.dataset.topic)}/${picture.dataset.partition}`;
  let log = null, selected = null, stream = null, following = picture.dataset.at === "";
  const colours = new Map();

  const colourOf = (producer) => {
    if (producer === null) return "pn";
    if (!colours.has(producer)) colours.set(producer, `p${colours.size % 8}`);
    return colours.get(producer);
  };
  const make = (name, attributes, parent, text) => {
    const found = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
    if (text !== undefined) found.textContent = text;
    parent.append(found);
    return found;
  };
  const number = (value) => value.toLocaleString("en").replaceAll(",", "\u202f");

  // Transactions in the window: from the first batch of a producer to its marker.
  const spans = () => {
    const open = new Map(), found = [];
    for (const one of log.batches) {
      if (one.producer === null) continue;
      if (one.marker === "COMMIT" || one.marker === "ABORT") {
        const span = open.get(one.producer);
        if (span) found.push({...span, last: one.base, outcome: one.marker === "COMMIT" ? "committed" : "aborted"});
        open.delete(one.producer);
      } else if (one.outcome !== "plain" && !one.marker) {
        const span = open.get(one.producer);
        if (span) { span.last = one.last; span.outcome = one.outcome; }
        else open.set(one.producer, {producer: one.producer, first: one.base, last: one.last, outcome: one.outcome});
      }
    }
    found.push(...open.values());
    return found.sort((a, b) => a.first - b.first);
  };

  const draw = () => {
    const width = Math.max(320, picture.clientWidth || 900);
    const first = log.first, last = Math.max(log.next, following ? log.high : log.next, first + 1);
    const x = (offset) => EDGE + (width - 2 * EDGE) * (offset - first) / (last - first);
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    svg.setAttribute("preserveAspectRatio", "none");
    const patterns = make("defs", {}, svg);
    for (const name of ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "pn"]) {
      const pattern = make("pattern", {id: `hatch-${name}`, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)", class: name}, patterns);
      make("rect", {width: 2.2, height: 6, class: "hatch"}, pattern);
    }
    if (log.high > log.stable && log.stable < last) {
      const from = x(Math.max(log.stable, first));
      make("rect", {x: from, y: TOP - 52, width: Math.max(0, x(Math.min(log.high, last)) - from), height: FLOOR - TOP + 52, class: "beyond"}, svg);
    }
    make("line", {x1: 0, x2: width, y1: FLOOR, y2: FLOOR, class: "axis-line"}, svg);
    // Transactions as lines above the batches, in as few rows as fit.
    const rows = [];
    for (const span of spans()) {
      let row = rows.findIndex((end) => end < x(span.first) - 3);
      if (row < 0) row = rows.length;
      const to = span.outcome === "open" ? x(Math.min(log.high, last)) : x(span.last + 1);
      rows[row] = to;
      if (row > 7) continue;
      const y = TOP - 6 - row * 6;
      const line = make("line", {x1: x(span.first), x2: Math.max(to, x(span.first) + 2), y1: y, y2: y, class: `span ${span.outcome} ${colourOf(span.producer)}`}, svg);
      make("title", {}, line, `producer ${span.producer}: transaction from offset ${span.first}, ${span.outcome}`);
    }
    const largest = Math.max(1, ...log.batches.map((one) => one.size));
    log.batches.forEach((one, index) => {
      const left = x(one.base), wide = Math.max(1.5, x(one.last + 1) - left - (x(one.last + 1) - left > 4 ? 1 : 0));
      const chosen = index === selected ? " selected" : "";
      let shape;
      if (one.marker) {
        const kind = one.marker === "ABORT" ? "abort-mark" : "commit-mark";
        shape = make("rect", {x: left, y: TOP, width: Math.max(3, Math.min(wide, 6)), height: FLOOR - TOP, class: kind + chosen}, svg);
      } else {
        const tall = 14 + (FLOOR - TOP - 20) * Math.log1p(one.size) / Math.log1p(largest);
        const attributes = {x: left, y: FLOOR - tall, width: wide, height: tall, class: `batch ${one.outcome} ${colourOf(one.producer)}${chosen}`};
        if (one.outcome === "aborted") make("rect", {...attributes, class: "", fill: `url(#hatch-${colourOf(one.producer)})`}, svg);
        shape = make("rect", attributes, svg);
      }
      shape.dataset.index = index;
      make("title", {}, shape, one.marker ? `${one.marker} at ${one.base}, producer ${one.producer}` : `offsets ${one.base} to ${one.last}, ${one.outcome}`);
    });
    const mark = (offset, kind, text, y) => {
      if (offset < first || offset > last) return;
      const at = x(offset);
      make("line", {x1: at, x2: at, y1: y + 4, y2: FLOOR + 12, class: kind}, svg);
      const late = at > width / 2;
      make("text", {x: at + (late ? -5 : 5), y: y + 12, class: "label", "text-anchor": late ? "end" : "start"}, svg, `${text} ${number(offset)}`);
    };
    mark(log.start, "line-start", "log start", 0);
    mark(log.high, "line-high", "high watermark", 0);
    mark(log.stable, "line-lso", "last stable offset", 14);
    const steps = 5;
    for (let step = 0; step <= steps; step += 1) {
      const offset = Math.round(first + (last - first) * step / steps);
      make("text", {x: x(offset), y: FLOOR + 30, class: "label small", "text-anchor": step === 0 ? "start" : step === steps ? "end" : "middle"}, svg, number(offset));
    }
    if (!log.batches.length) make("text", {x: width / 2, y: 150, class: "label", "text-anchor": "middle"}, svg, "There is no batch here.");
    picture.replaceChildren(svg);
    for (const name of ["start", "stable", "high"]) document.getElementById(name).textContent = number(log[name]);
    document.getElementById("held").textContent = number(Math.max(0, log.high - log.stable));
    const shown = log.batches.length ? `${log.batches.length} batches, offsets ${number(first)} to ${number(log.next - 1)}` : "No batch";
    state.textContent = `${shown}${following ? "; following the end" : ""}`;
    const there = [...new Set(log.batches.map((one) => one.producer).filter((one) => one !== null))];
    document.getElementById("producers").replaceChildren(...there.map((producer) => {
      const item = document.createElement("li"), swatch = document.createElement("span");
      swatch.className = `swatch ${colourOf(producer)}`;
      item.append(swatch, `producer ${producer}`);
      return item;
    }));
  };

  const showBatch = () => {
    const one = log?.batches[selected];
    if (!one) { const none = document.createElement("p"); none.className = "quiet"; none.textContent = "None."; panel.replaceChildren(none); return; }
    const list = document.createElement("dl");
    list.className = "facts";
    const kind = one.marker ? `${one.marker} marker` : one.outcome === "plain" ? "data, no transaction" : `data, ${one.outcome}`;
    for (const [name, value] of [["kind", kind], ...Object.entries(one.fields)]) {
      const term = document.createElement("dt"), text = document.createElement("dd");
      term.textContent = name;
      const isTime = name.endsWith("timestamp") && Number(value) >= 0;
      text.textContent = isTime ? `${value} (${timeOf(Number(value))})` : value;
      list.append(term, text);
    }
    panel.replaceChildren(list);
  };
  const select = (index) => {
    if (!log?.batches.length) return;
    selected = Math.min(Math.max(index, 0), log.batches.length - 1);
    draw();
    showBatch();
  };

  // A marker decides the batches of its producer that were open.
  const take = (news) => {
    Object.assign(log, {start: news.start, stable: news.stable, high: news.high});
    for (const one of news.batches) {
      if (one.base < log.next) continue;
      log.batches.push(one);
      log.next = one.last + 1;
      if (one.marker === "COMMIT" || one.marker === "ABORT") {
        for (const before of log.batches) {
          if (before.producer === one.producer && ["open", "ended"].includes(before.outcome)) before.outcome = one.marker === "COMMIT" ? "committed" : "aborted";
        }
      }
    }
    const surplus = log.batches.length - KEPT;
    if (surplus > 0) {
      log.batches.splice(0, surplus);
      log.first = log.batches[0].base;
      if (selected !== null) selected = selected >= surplus ? selected - surplus : null;
    }
    draw();
    showBatch();
  };
  const setFollowing = (wanted) => {
    following = wanted;
    followButton.setAttribute("aria-pressed", wanted);
    stream?.close();
    stream = null;
    if (!wanted) return;
    stream = openStream(() => `/live-log/${place}?from=${log.next}`, {more: take, window: (news) => { log = news; selected = null; draw(); showBatch(); }});
    // After a pause the browser asks from the old offset: the console answers with a new window if that is long ago.
  };
  const load = async (at, follow) => {
    state.textContent = "Loading…";
    const response = await fetch(`/data/log/${place}${at === null ? "" : `?at=${at}`}`);
    if (!response.ok) {
      const problem = response.headers.get("content-type")?.includes("json") ? (await response.json()).error : await response.text();
      showTrouble(problem);
      state.textContent = "";
      return;
    }
    showTrouble("");
    log = await response.json();
    selected = null;
    following = follow;
    draw();
    showBatch();
    setFollowing(follow);
    history.replaceState(null, "", at === null ? location.pathname : `?at=${at}`);
  };

  picture.addEventListener("click", (event) => {
    const index = event.target.closest("[data-index]")?.dataset.index;
    if (index !== undefined) select(Number(index));
  });
  picture.addEventListener("keydown", (event) => {
    const steps = {ArrowLeft: -1, ArrowRight: 1};
    if (event.key in steps) select(selected === null ? log.batches.length - 1 : selected + steps[event.key]);
    else if (event.key === "Home") select(0);
    else if (event.key === "End") select(log.batches.length - 1);
    else return;
    event.preventDefault();
  });
  followButton.addEventListener("click", () => following ? setFollowing(false) : load(null, true));
  document.getElementById("earlier").addEventListener("click", () => {
    if (log) load(Math.max(log.start, log.first - Math.max(1, log.next - log.first)), false);
  });
  document.getElementById("later").addEventListener("click", () => { if (log) load(Math.min(log.next, log.high), false); });
  new ResizeObserver(() => { if (log) draw(); }).observe(picture);
  load(picture.dataset.at === "" ? null : Number(picture.dataset.at), following);
})();
