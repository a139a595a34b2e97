// The page: one history or two, and recommendations; the address holds the state of both.

import * as api from "./api.js";
import { BoostControls } from "./boosts.js";
import { drawSpread } from "./chart.js";
import { DialControls, Dials } from "./dials.js";
import { ColumnControls, Filters } from "./filters.js";
import { History } from "./history.js";
import { fromLink, isTooLong, toLink } from "./link.js";
import { scaleOf } from "./list.js";
import { addTwin, Person } from "./person.js";
import { useTheme } from "./theme.js";

const N_RECOMMENDED = 10;
const N_POPULAR = 8;
const RETRY_MS = 3000;
const NAMES = ["A", "B"];
const at = (id) => document.getElementById(id);

let dials = new Dials();
let filters = new Filters();
let model = null; // the answer of /v1/model
let asking = null;
let retry = null;
let nRecommended = N_RECOMMENDED;
let isTwo = false;
let scale = null;
let turn = 0; // counts changes of the histories; answers to an earlier one are dropped

addTwin();
const listeners = {
  onChange: changed,
  onPin: (id) => change(() => (dials.isPinned(id) ? dials.unpin(id) : dials.pin(id))),
  onBoost: (id, name) => change(() => (dials.isBoosted(id) ? dials.unboost(id) : dials.boost(id, name))),
  onError: showError,
  toList,
};
const both = [new Person("", listeners), new Person("-2", listeners)];
const people = () => both.slice(0, isTwo ? 2 : 1);
const controls = new DialControls({
  onChange: (name, value) => {
    dials[name] = value;
    changed({ isStep: true });
  },
  onReset: () => {
    toList();
    change(() => {
      dials = new Dials();
      filters = new Filters();
    });
  },
});
const filterControls = new ColumnControls({
  kind: "filter", label: (column) => `Only ${column}`, none: "all",
  onChange: (column, value) => change(() => {
    const { [column]: _, ...others } = filters.chosen;
    filters = new Filters(value === null ? others : { ...others, [column]: value });
  }),
});

const limitControls = new ColumnControls({
  kind: "limit", label: (column) => `At most per ${column}`, none: "no limit",
  onChange: (column, most) => change(() => dials.limit(column, most && Number(most))),
});
const boostControls = new BoostControls({
  onAdd: (column, value) => {
    const key = `c*${column}*${value}`;
    if (!dials.boosts.has(key)) change(() => dials.boostCategory(column, value));
    boostControls.focus(key);
  },
  onSet: (key, by) => {
    dials.boosts.get(key).by = by;
    changed({ isStep: true });
  },
  onRemove: (key) => change(() => dials.boosts.delete(key)),
});

function change(act) {
  act();
  changed();
}

// The focus goes to the lists when the button that had it goes away.
function toList() {
  at("next").focus({ preventScroll: true });
}

// Updates the page after a change. A step of a count or a dial adds no browser history.
function changed({ isStep = false, isTyped = null, isRestored = false } = {}) {
  const started = performance.now();
  turn += 1;
  arrange();
  people().forEach((person) => person.draw(person === isTyped));
  const isHad = (id) => people().every((person) => person.history.has(id));
  dials.items.filter(isHad).forEach((id) => dials.forget(id));
  controls.draw(dials);
  boostControls.draw(dials);
  limitControls.draw(dials.limits);
  filterControls.draw(new Map(Object.entries(filters.chosen)));
  at("reset").hidden = dials.isZero && filters.isEmpty;
  const link = linkNow();
  const place = link && !isTooLong(link) ? `#${link}` : location.pathname + location.search;
  if (!isRestored) window.history[isStep ? "replaceState" : "pushState"](null, "", place);
  return update(started);
}

const linkNow = () => toLink(people().map((person) => person.history), dials, filters);

// One person, or two side by side.
function arrange() {
  document.body.classList.toggle("two", isTwo);
  for (const id of ["person-2", "one-list-2"]) at(id).hidden = !isTwo;
  both.forEach((person, place) => {
    person.at("list-title").hidden = !isTwo;
    person.at("list-title").textContent = `For ${NAMES[place]}`;
    person.at("list").setAttribute("aria-label", `Recommendations${isTwo ? ` for ${NAMES[place]}` : ""}, best first`);
    person.at("history-title").textContent = isTwo ? `Person ${NAMES[place]}` : "What you know of someone";
  });
  at("compare").setAttribute("aria-pressed", String(isTwo));
  at("compare").textContent = isTwo ? "Back to one" : "Compare two";
}

async function update(started = performance.now()) {
  clearTimeout(retry);
  asking?.abort();
  const mine = (asking = new AbortController());
  const asked = people();
  const evidence = asked.map((person) => person.history.evidence());
  const hasDislikes = asked.some((person) => person.history.hasDislikes);
  const wait = (isWaiting) => asked.forEach((person) => person.list.wait(isWaiting));
  const slow = setTimeout(() => wait(true), 250);
  try {
    const wanted = { dials: dials.asked(), only: filters.asked(), n: nRecommended };
    const answers = await api.recommend(evidence, wanted, mine.signal);
    if (mine !== asking) return;
    scale = scaleOf(answers, model.is_calibrated, hasDislikes);
    const places = answers.map(({ recommendations }) =>
      new Map(recommendations.map((entry, place) => [String(entry.item), place + 1])));
    const nothing = filters.isEmpty ? "There is nothing left to recommend." : "No other item is in these categories.";
    asked.forEach((person) => (person.at("nothing").textContent = nothing));
    asked.forEach((person, place) => person.list.draw(answers[place].recommendations, scale, {
      evidence: evidence[place], dials, others: isTwo ? places[1 - place] : undefined, otherName: NAMES[1 - place],
    }));
    at("scale").textContent = answers.some((answer) => answer.recommendations.length) ? scale.words : "";
    showCommon(places);
    if (isTwo) at("spread").hidden = true;
    else drawSpread(answers[0].spread, answers[0].recommendations);
    at("notice").hidden = true;
    if (isTooLong(linkNow())) showTooLong();
    requestAnimationFrame(() => setTimeout(() => report(answers, performance.now() - started)));
  } catch (error) {
    if (error.name !== "AbortError" && mine === asking) showError(error);
  } finally {
    clearTimeout(slow);
    if (mine === asking) wait(false);
  }
}

function showCommon(places) {
  at("in-common").hidden = !isTwo;
  if (!isTwo) return;
  const n = [...places[0].keys()].filter((id) => places[1].has(id)).length;
  at("in-common").textContent = `${n} of ${places[0].size} are in both lists. Bars of both mean the same.`;
}

// Announces the change to screen readers, with the time it took.
function report(answers, ms) {
  const best = answers.map(({ recommendations: [first] }, place) => {
    const who = answers.length > 1 ? ` for ${NAMES[place]}` : "";
    return first ? `First${who} is ${first.name}, ${scale.text(first)}.` : `Nothing is left${who}.`;
  });
  at("status").textContent = `${best.join(" ")} On screen after ${Math.round(ms)} ms.`;
  document.body.dataset.answers = Number(document.body.dataset.answers ?? 0) + 1;
  document.body.dataset.milliseconds = ms.toFixed(1);
}

// Shows an error, keeps the last answer, and tries again if that may help.
function showError(error) {
  const isKey = error.code === "unauthorized";
  const isPassing = error.code === "unreachable" || error.code === "overloaded";
  at("notice-title").textContent = isKey ? "This service asks for a key." : sentence(error.message);
  at("notice-text").textContent = isKey ? "" : isPassing ? `${scale ? "What you see is the last answer. " : ""}Trying again …` : sentence(error.fix ?? "");
  at("key-form").hidden = !isKey;
  at("retry").hidden = isKey || error.code === "note";
  at("notice").hidden = false;
  clearTimeout(retry);
  if (isPassing) retry = setTimeout(begin, RETRY_MS);
}

const note = (message, fix = "") => showError({ code: "note", message, fix });

function showTooLong() {
  note("This is too long for a link", "The address of the page no longer holds it; remove some entries to share it");
}

function sentence(text) {
  const start = text.charAt(0).toUpperCase() + text.slice(1);
  return !start || /[.!?…]$/.test(start) ? start : `${start}.`;
}

// Names the items of a link and drops unknown ones; returns their number.
async function name(histories, turned) {
  const unknown = new Set();
  // Asked for each history apart, as the service limits the length of one.
  for (const some of [...histories.map((history) => [...history.entries.keys()]), turned.items]) {
    if (!some.length) continue;
    const found = await api.lookUp(some);
    for (const item of found.items) {
      Object.assign(turned.boosts.get(`b*${item.item}`) ?? {}, { name: item.name });
      for (const history of histories) Object.assign(history.entries.get(String(item.item)) ?? {}, item);
    }
    found.unknown.forEach((id) => unknown.add(String(id)));
  }
  for (const id of unknown) {
    histories.forEach((history) => history.remove(id));
    turned.forget(id);
  }
  return unknown.size;
}

async function restore() {
  const text = location.hash.slice(1);
  const problems = isTooLong(text) ? ["This link is too long to be read"] : [];
  const state = fromLink(problems.length ? "" : text, model, nRecommended);
  const mine = (turn += 1);
  try {
    const nUnknown = await name(state.histories, state.dials);
    if (mine !== turn) return; // changed meanwhile, or another link was followed
    isTwo = state.histories.length > 1 && model.limits.batch > 1;
    both.forEach((person, place) => (person.history = state.histories[place] ?? new History()));
    ({ dials, filters } = state);
    await changed({ isRestored: true });
    if (nUnknown) problems.push(`${n_of(nUnknown, "item")} of this link ${nUnknown === 1 ? "is" : "are"} not in this model; the others are shown`);
    for (const [n, noun] of [[state.nLostFilters, "filter"], [state.nLostDials, "dial"]]) {
      if (n) problems.push(`${n_of(n, noun)} of this link ${n === 1 ? "is" : "are"} not in this model`);
    }
    if (state.isOtherModel) problems.push("This link was made with another version of the model, so its numbers may differ");
    if (problems.length && turn === mine + 1) note(problems[0], problems.slice(1).map(sentence).join(" "));
  } catch (error) {
    if (mine === turn) showError(error);
  }
}

const n_of = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;

async function begin() {
  try {
    model = await api.model();
    nRecommended = Math.min(N_RECOMMENDED, model.limits.n);
    both.forEach((person) => person.limit(model.limits.n));
    at("compare").hidden = model.limits.batch < 2;
    filterControls.offer(model.filters);
    const limits = Array.from({ length: nRecommended - 1 }, (_, place) => String(place + 1));
    limitControls.offer(limits.length ? Object.fromEntries(model.categories.map((column) => [column, limits])) : {});
    boostControls.offer(model.filters);
    await Promise.all([restore(), introduce()]);
  } catch (error) {
    showError(error);
  }
}

async function introduce() {
  try {
    const popular = await api.search("", Math.min(N_POPULAR, model.limits.n));
    at("model").textContent = `${model.name} · ${model.n_items.toLocaleString("en")} items`;
    at("model").title = `version ${model.version}, loaded ${model.loaded_at}`;
    both.forEach((person) => person.suggest(popular.items));
  } catch {
    // `restore` asks the same service and shows what is wrong.
  }
}

// The second person begins as a copy of the first: "what if" is one change away.
at("compare").addEventListener("click", () => change(() => {
  isTwo = !isTwo;
  if (isTwo && both[1].history.isEmpty) both[1].history = both[0].history.copy();
}));
at("retry").addEventListener("click", begin);
at("dismiss").addEventListener("click", () => (at("notice").hidden = true));
at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  api.useKey(at("key").value.trim());
  at("notice").hidden = true;
  begin();
});
at("link").addEventListener("click", async () => {
  const link = linkNow();
  if (isTooLong(link)) {
    showTooLong();
    return;
  }
  // With the version of the model, so that the next person learns if the model has changed.
  const shared = new URL(link ? `#${link}&m=${encodeURIComponent(model?.version ?? "")}` : "#", location.href);
  try {
    await navigator.clipboard.writeText(shared.href);
    at("link").textContent = "Copied";
  } catch {
    at("link").textContent = "In address bar";
  }
  setTimeout(() => (at("link").textContent = "Copy link"), 1500);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.target.closest("input, select")) {
    event.preventDefault();
    at("search").focus();
  }
});
addEventListener("popstate", () => model && restore());
useTheme(at("theme"));
begin();
