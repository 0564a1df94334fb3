// Asks for the numbers and the latest jobs once a second. Everything that came from a user is set as text, never as
// markup. The token stays in this tab (sessionStorage) and goes nowhere but to this server.
"use strict";

const EVERY_MS = 1000;
const TOKEN = "stoker-token";
const STATUSES = ["queued", "running", "scheduled", "blocked", "completed", "failed", "cancelled"];

const byId = (id) => document.getElementById(id);

function element(tag, text, className) {
  const made = document.createElement(tag);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

async function fetchJson(path) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(10_000) });
  if (!answer.ok) throw Object.assign(new Error(`the server answered ${answer.status}`), { status: answer.status });
  return answer.json();
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const units = [[86400, "d"], [3600, "h"], [60, "min"]];
  const [size, name] = units.find(([unit]) => seconds >= unit);
  return `${Math.floor(seconds / size)} ${name}`;
}

function card(label, value) {
  const made = element("div", "", "card");
  made.append(element("b", value), element("span", label));
  return made;
}

function showStats(stats) {
  const rate = stats.success_rate;
  const cards = [
    card("queue depth", stats.queue_depth.toLocaleString()),
    card("workers", stats.workers.toLocaleString()),
    card("success rate", rate === null ? "–" : `${(rate * 100).toFixed(1)} %`),
    card("up for", duration(stats.uptime_sec)),
    ...STATUSES.map((status) => card(status, (stats.jobs_by_status[status] ?? 0).toLocaleString())),
  ];
  byId("numbers").replaceChildren(...cards);
}

function jobRow(job) {
  const row = document.createElement("tr");
  const created = element("td", new Date(job.created_at).toLocaleString());
  row.append(
    element("td", job.id, "id"),
    element("td", job.type),
    element("td", job.name ?? ""),
    element("td", job.queue),
    element("td", String(job.priority), "number"),
    element("td", job.status, STATUSES.includes(job.status) ? job.status : ""),
    element("td", `${job.attempt}/${job.max_attempts}`, "number"),
    element("td", duration(job.execution_time_sec), "number"),
    created,
  );
  return row;
}

function showJobs(page) {
  byId("jobs").replaceChildren(...page.jobs.map(jobRow));
  byId("none").hidden = page.jobs.length > 0;
}

function showState(className, text) {
  const state = byId("state");
  if (state.textContent === text) return;
  state.className = `state ${className}`;
  state.textContent = text;
}

function askForToken() {
  byId("login-note").textContent = sessionStorage.getItem(TOKEN) ? "That token was not accepted." : "";
  sessionStorage.removeItem(TOKEN);
  byId("login").hidden = false;
  showState("down", "not let in");
}

// One refresh at a time, and the next only after this one: a slow server is not asked twice.
async function refresh() {
  try {
    const [stats, page] = await Promise.all([fetchJson("/stats"), fetchJson("/jobs?limit=25")]);
    showStats(stats);
    showJobs(page);
    showState("up", "live");
  } catch (error) {
    if (error.status === 401) return askForToken();
    showState("down", error.status ? error.message : "the server cannot be reached; trying again");
  }
  setTimeout(refresh, EVERY_MS);
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, byId("token").value.trim());
  byId("token").value = "";
  byId("login").hidden = true;
  refresh();
});

refresh();
