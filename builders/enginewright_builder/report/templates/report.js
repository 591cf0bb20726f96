// Draws the charts from the JSON in the page. Colours are the page's own variables, so that light, dark and paper need
// nothing from here.
"use strict";

const content = (id) => JSON.parse(document.getElementById(id).textContent);

const THEME = {
  background: null,
  font: 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif',
  view: { stroke: null },
  axis: { labelColor: "var(--soft)", titleColor: "var(--soft)", titleFontWeight: "normal", labelFontSize: 12, titleFontSize: 12,
          gridColor: "var(--grid)", domainColor: "var(--line)", tickColor: "var(--line)" },
  legend: { labelColor: "var(--soft)", labelFontSize: 12, symbolType: "square" },
  text: { fontSize: 12 },
};

function draw(place, spec) {
  place.hidden = false;
  return vegaEmbed(place, { ...spec, autosize: { type: "fit-x", contains: "padding" } },
                   { mode: "vega-lite", renderer: "svg", actions: false, config: THEME });
}

function decisions(rows) {
  const table = document.getElementById("scaling-decisions");
  for (const row of rows) {
    const line = table.tBodies[0].insertRow();
    for (const [text, kind] of [[new Date(row.time).toLocaleString(undefined, { timeZoneName: "short" }), ""], [`${row.from} → ${row.to}`, "n"], [row.reason, ""]]) {
      const cell = line.insertCell();
      cell.textContent = text;
      cell.className = kind;
    }
  }
  table.hidden = rows.length === 0;
}

// What `kubectl optimisedmodel report` filled in; every chart spans the same time.
function scaling(charts, history) {
  document.getElementById("scaling-words").textContent = history.words;
  money(history.money);
  decisions(history.datasets.decisions);
  return ["replicas", "queued", "rate"].filter((name) => history.datasets[name].length > 0)
    .map((name) => draw(document.querySelector(`[data-chart=${name}]`), overTime(name, charts[name], history)));
}

function overTime(name, spec, { from, to, datasets }) {
  const { decisions } = datasets, rows = datasets[name];
  const values = [...rows.map((row) => row.value ?? row.replicas ?? 0), ...(spec.layer ? decisions.map((row) => row.to) : [])];
  // To one at least: a line of zeros lies at the bottom.
  spec.encoding.y.scale = { domain: [0, Math.max(1, ...values)] };
  spec.encoding.x = { ...spec.encoding.x, scale: { domain: [from, to].map((time) => ({ expr: `toDate('${time}')` })) } };
  // Vega warns of marks without data, and draws no line through one point.
  if (spec.layer && decisions.length === 0) spec.layer = spec.layer.slice(0, 1);
  if (spec.mark && rows.length === 1) spec.mark = { ...spec.mark, point: true };
  return { ...spec, datasets };
}

// By the operator's prices, which the build does not know.
function money(words) {
  const place = document.getElementById("money-words");
  if (!place || !words) return;
  place.textContent = words;
  place.hidden = place.previousElementSibling.hidden = false;
}

async function main() {
  const charts = content("charts"), history = content("scaling");
  const fixed = [...document.querySelectorAll("[data-chart]:not([hidden])")];
  await Promise.all([...fixed.map((place) => draw(place, charts[place.dataset.chart])), ...(history ? scaling(charts, history) : [])]);
  document.documentElement.dataset.drawn = "yes";
}

main();
