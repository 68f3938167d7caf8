// What every page does: it refreshes itself, copies commands, switches between light and dark, and has keys.
"use strict";
(() => {
  const root = document.documentElement;
  const kept = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
  const keep = (name, value) => { try { value ? localStorage.setItem(name, value) : localStorage.removeItem(name); } catch { /* private windows forbid it: the choice lasts for this page */ } };
  const themes = ["", "light", "dark"];
  const setTheme = (theme) => { theme ? root.dataset.theme = theme : delete root.dataset.theme; };
  setTheme(kept("theme") || "");
  const nextTheme = () => {
    const theme = themes[(themes.indexOf(root.dataset.theme || "") + 1) % themes.length];
    setTheme(theme);
    keep("theme", theme);
  };
  document.getElementById("theme")?.addEventListener("click", nextTheme);

  const trouble = document.getElementById("trouble");
  window.showTrouble = (text) => { trouble.textContent = text || ""; trouble.hidden = !text; };
  // A stream that ends for good answers with a status that EventSource does not repeat.
  // A hidden tab has no stream: browsers open only six connections to a host. `urlOf` gives the URL of each beginning.
  window.openStream = (urlOf, on) => {
    let stream = null;
    const open = new AbortController(); // of what listens while the stream is open
    const begin = () => {
      stream = new EventSource(urlOf());
      stream.addEventListener("trouble", (event) => showTrouble(JSON.parse(event.data)));
      for (const [name, act] of Object.entries(on)) {
        stream.addEventListener(name, (event) => { showTrouble(""); act(JSON.parse(event.data)); });
      }
      stream.onerror = () => showTrouble(stream.readyState === EventSource.CLOSED
        ? "This page does not refresh itself any more. Load it again."
        : "The console does not answer. Trying again…");
    };
    const look = () => {
      if (document.hidden) { stream?.close(); stream = null; }
      else if (!stream) begin();
    };
    document.addEventListener("visibilitychange", look, {signal: open.signal});
    addEventListener("pagehide", () => stream?.close(), {signal: open.signal});
    look();
    return {close: () => { open.abort(); stream?.close(); }};
  };
  window.timeOf = (ms) => {
    const at = new Date(ms);
    return Number.isNaN(at.getTime()) ? String(ms) : at.toISOString();
  };

  const live = document.getElementById("live");
  const nameOf = (element) => element && live.contains(element) && (element.id ? `#${CSS.escape(element.id)}` : element.getAttribute("href") && `a[href="${CSS.escape(element.getAttribute("href"))}"]`);
  const replace = (html) => {
    if (String(getSelection()).length) return; // someone copies a part of the page
    const focused = nameOf(document.activeElement);
    const opened = new Map([...live.querySelectorAll("details")].map((one) => [one.previousElementSibling?.textContent, one.open]));
    live.innerHTML = html;
    for (const one of live.querySelectorAll("details")) {
      const was = opened.get(one.previousElementSibling?.textContent);
      if (was !== undefined) one.open = was;
    }
    if (focused) live.querySelector(focused)?.focus({preventScroll: true});
  };
  if (live?.dataset.live) openStream(() => live.dataset.live, {html: replace, same: () => {}});

  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.(".copy");
    if (!button) return;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
    } catch {
      const range = document.createRange();
      range.selectNodeContents(button.previousElementSibling);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });

  let going = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    if (going && Date.now() - going < 1500) {
      going = 0;
      const link = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    if (event.key === "g") going = Date.now();
    if (event.key === "d") nextTheme();
    if (event.key === "/") {
      const field = document.getElementById("search");
      if (field) { event.preventDefault(); field.focus(); }
    }
  });
})();
