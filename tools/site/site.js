// SPDX-License-Identifier: Apache-2.0
// The theme, the contents of a narrow window, and the search. The index is a script, because a page that is opened as a
// file may read no other file.
const root = document.currentScript.dataset.root;

// Light or dark: as the system says, until the button says otherwise; ?theme=dark for one page.
const asked = new URLSearchParams(location.search);
const kept = {
  get() { try { return localStorage.getItem("theme"); } catch { return null; } },      // a browser may refuse it
  set(theme) { try { localStorage.setItem("theme", theme); } catch {} },
};
const theme = asked.get("theme") ?? kept.get();
if (theme) document.documentElement.dataset.theme = theme;
document.getElementById("theme").addEventListener("click", () => {
  const now = document.documentElement.dataset.theme ??
      (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
  kept.set(document.documentElement.dataset.theme);
});

const menu = document.getElementById("menu");
menu.addEventListener("click", () => {
  menu.setAttribute("aria-expanded", document.body.classList.toggle("menu"));
});
document.querySelector("nav.contents [aria-current]")?.scrollIntoView({block: "center"});
window.scrollTo(0, 0);
if (location.hash) document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();

let loading;
function index() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = root + "search-index.js";
    script.onload = () => resolve(window.searchIndex.map(([title, where, address, text, weight]) =>
        ({title, where, address, text, weight, low: title.toLowerCase(), all: `${where} ${text}`.toLowerCase()})));
    script.onerror = reject;
    document.head.append(script);
  });
  return loading;
}

// How well an entry fits one word: its title more than its text, the whole name more than a part of it.
function fit(entry, word) {
  const last = entry.low.split("::").at(-1);
  if (entry.low === word || last === word) return 100;
  if (last.startsWith(word) || entry.low.startsWith(word)) return 40;
  if (entry.low.includes(word)) return 20;
  const at = entry.all.indexOf(word);
  return at < 0 ? 0 : at === 0 || /\W/.test(entry.all[at - 1]) ? 4 : 1;
}

async function search(text, most) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  const found = [];
  for (const entry of await index()) {
    const fits = words.map((word) => fit(entry, word));
    if (fits.every((one) => one > 0)) found.push([fits.reduce((a, b) => a + b) * (1 + entry.weight / 4), entry]);
  }
  found.sort(([a, x], [b, y]) => b - a || x.title.length - y.title.length);
  return found.slice(0, most).map(([, entry]) => entry);
}

// The words around the first word that was looked for.
function excerpt(entry, text) {
  const word = text.toLowerCase().split(/\s+/).find(Boolean);
  const at = Math.max(0, entry.text.toLowerCase().indexOf(word));
  const begin = at < 60 ? 0 : entry.text.lastIndexOf(" ", at - 40) + 1;
  const end = entry.text.length < begin + 150 ? entry.text.length : entry.text.lastIndexOf(" ", begin + 150);
  return (begin > 0 ? "… " : "") + entry.text.slice(begin, end) + (end < entry.text.length ? " …" : "");
}

function show(to, entries, text) {
  to.replaceChildren(...entries.map((entry) => {
    const hit = document.createElement("a");
    hit.className = "hit";
    hit.href = root + entry.address;
    const parts = [["b", entry.title], ["small", entry.where], ["p", excerpt(entry, text)]];
    hit.append(...parts.map(([tag, inner]) => Object.assign(document.createElement(tag), {textContent: inner})));
    return hit;
  }));
  if (entries.length === 0) to.textContent = `nothing has “${text}”`;
}

const input = document.querySelector(".search input"), results = document.getElementById("results");
input.addEventListener("input", async () => {
  const text = input.value.trim();
  if (text) show(results, await search(text, 14), text);
  results.hidden = !text;
});
input.addEventListener("focus", () => { index(); results.hidden = !input.value.trim(); });
input.addEventListener("keydown", (event) => {
  const hits = [...results.querySelectorAll(".hit")], at = hits.findIndex((hit) => hit.classList.contains("chosen"));
  if (event.key === "Enter") {
    if (at >= 0) hits[at].click();
    else location.href = `${root}search.html?q=${encodeURIComponent(input.value)}`;
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    hits[at]?.classList.remove("chosen");
    const next = hits[Math.min(hits.length - 1, Math.max(0, at + (event.key === "ArrowDown" ? 1 : -1)))];
    next?.classList.add("chosen");
    next?.scrollIntoView({block: "nearest"});
  } else if (event.key === "Escape") {
    input.blur();
    results.hidden = true;
  }
});
document.addEventListener("click", (event) => {
  if (!event.target.closest(".search")) results.hidden = true;
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.target.closest("input")) {
    event.preventDefault();
    input.focus();
  }
});

const found = document.getElementById("found"), question = asked.get("q");
if (found) {
  input.value = question ?? "";
  if (question) search(question, 60).then((entries) => show(found, entries, question));
  else found.textContent = "What to look for goes into the field above.";
}
