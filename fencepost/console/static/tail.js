// The live tail: rows of the newest records, the newest first.
"use strict";
(() => {
  const KEPT = 500;
  const body = document.getElementById("tail"), state = document.getElementById("tail-state");
  const form = document.getElementById("tail-form"), filter = document.getElementById("search"), pause = document.getElementById("pause");
  let stream = null, seen = 0, skipped = 0, paused = false, waiting = [];
  const last = new Map(); // by partition: a stream that begins again sends some records a second time

  const cell = (row, text, kind) => {
    const found = row.insertCell();
    found.textContent = text;
    if (kind) found.className = kind;
    return found;
  };
  const shown = (value) => value.text === null ? "null" : value.text + (value.form === "text" && value.text.length >= 2000 ? `… (${value.size} bytes)` : "");
  const matches = (one) => {
    const wanted = filter.value.trim().toLowerCase();
    if (!wanted) return true;
    if (one.marker) return false;
    const texts = [one.key.text, one.value.text, ...one.headers.flatMap(([name, value]) => [name, value.text])];
    return texts.some((text) => (text ?? "").toLowerCase().includes(wanted));
  };
  const add = (one) => {
    const row = body.insertRow(0);
    cell(row, one.time < 0 ? "" : timeOf(one.time).slice(11, 23) || String(one.time));
    cell(row, one.partition, "n");
    cell(row, one.offset, "n");
    if (one.marker) {
      row.className = `marker ${one.marker.toLowerCase()}`;
      const found = cell(row, one.marker);
      found.colSpan = 3;
      if (one.marker === "COMMIT" || one.marker === "ABORT") {
        const bold = document.createElement("b");
        bold.textContent = one.marker;
        found.replaceChildren(bold, ` ends the transaction of producer ${one.producer}`);
      }
      cell(row, `producer ${one.producer}`);
      return;
    }
    cell(row, shown(one.key), one.key.text === null ? "null" : "");
    cell(row, shown(one.value), one.value.text === null ? "null" : "");
    cell(row, one.headers.map(([name, value]) => `${name}=${shown(value)}`).join(" "));
    cell(row, one.transactional ? `producer ${one.producer}` : "");
    row.classList.add("fresh");
    setTimeout(() => row.classList.remove("fresh"), 800);
  };
  const report = () => {
    const level = form.elements.isolation.value;
    state.textContent = `${seen} records, ${level}${skipped ? `; ${skipped} offsets skipped` : ""}${paused ? `; paused, ${waiting.length} waiting` : ""}`;
  };
  const take = (news) => {
    skipped += news.skipped;
    const before = new Map(last);
    for (const one of news.records) {
      if (one.offset <= (before.get(one.partition) ?? -1)) continue;
      last.set(one.partition, Math.max(one.offset, last.get(one.partition) ?? -1));
      if (!one.marker) seen += 1;
      if (!matches(one)) continue;
      if (paused) { waiting.push(one); if (waiting.length > KEPT) waiting.shift(); } else add(one);
    }
    while (body.rows.length > KEPT) body.deleteRow(-1);
    report();
  };
  const start = () => {
    stream?.close();
    body.replaceChildren();
    seen = skipped = 0;
    waiting = [];
    last.clear();
    const query = new URLSearchParams({isolation: form.elements.isolation.value, partition: form.elements.partition.value});
    history.replaceState(null, "", `?${query}`);
    stream = openStream(() => `/live-tail/${encodeURIComponent(body.dataset.topic)}?${query}`, {records: take});
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const name of ["isolation", "partition"]) {
    const found = form.elements[name];
    for (const one of found instanceof RadioNodeList ? found : [found]) one.addEventListener("change", start);
  }
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", paused);
    pause.textContent = paused ? "Go on" : "Pause";
    if (!paused) { waiting.forEach(add); waiting = []; }
    report();
  });
  document.getElementById("clear").addEventListener("click", () => body.replaceChildren());
  start();
})();
