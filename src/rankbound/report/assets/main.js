// Connects the choices at the top of the section "Query by query" with everything that depends on them.

const TYPE_COLORS = ["--type-0", "--type-1", "--type-2", "--type-3", "--type-4", "--type-5", "--type-6", "--type-7"];
const COLUMNS = 12; // systems in the list of queries, unless all are requested
// what the horizontal axis can show besides systems
const QUERY_AXES = { expected: "expected value of a random ranking", items: "items in the list", relevant: "relevant items" };

async function start() {
  const page = await readPage(), { queries, systems } = page;
  const tip = makeTip(element("tip"));
  const state = { data: null, type: null, measure: 0, x: page.x, y: page.y, search: "", allMeans: false, allColumns: false };
  let values = await page.valuesOf(0), rows = [], ranking = []; // ranking: the systems, best first

  const lowerIds = queries.ids.map(id => id.toLowerCase());
  const valueOf = system => row => values[system * queries.count + row];
  const digits = () => Math.max(0, page.measures[state.measure].digits);
  // an axis is "s:" and a system's name, or "q:" and a column of the queries
  const xIsSystem = () => state.x.startsWith("s:");
  const valuesOn = axis => axis.startsWith("s:") ? valueOf(systems.indexOf(axis.slice(2))) : row => queries[axis.slice(2)][row];
  const xOf = () => valuesOn(state.x), yOf = () => valuesOn(state.y);
  const isPair = () => xIsSystem() && state.x !== state.y;
  const axisName = axis => axis.startsWith("s:") ? axis.slice(2) : QUERY_AXES[axis.slice(2)];
  const gapOf = () => { const x = xOf(), y = yOf(); return row => y(row) - x(row); };
  const dataName = row => page.dataSets[queries.data[row]];
  const typeName = row => page.types[queries.type[row]] || "–";

  // ---- choices

  const present = new Set(queries.type);
  const types = page.types.map((name, code) => [code, name]).filter(([code, name]) => name && present.has(code));
  fill("data-set", [["", "all data sets"], ...page.dataSets.map((name, index) => [index, name])]);
  fill("type", [["", "all types"], ...types]);
  fill("measure", page.measures.map(({ name }, index) => [index, name]));
  fill("y", systems.map(name => [`s:${name}`, name]));
  fill("x", [
    ...systems.map(name => [`s:${name}`, name]),
    ...Object.entries(QUERY_AXES).filter(([key]) => Array.from(queries[key]).some(Number.isFinite)).map(([key, name]) => [`q:${key}`, name]),
  ]);
  element("data-set").parentElement.hidden = page.dataSets.length < 2;
  element("type").parentElement.hidden = !types.length;
  element("measure").parentElement.hidden = page.measures.length < 2;
  const selected = id => element(id).value;
  const restore = () => {
    element("x").value = page.x;
    element("y").value = page.y;
  };
  restore();
  element("controls").addEventListener("submit", event => event.preventDefault());
  element("controls").addEventListener("change", follow);
  element("controls").addEventListener("reset", () => setTimeout(() => { restore(); follow(); }));
  element("all-columns").addEventListener("click", () => { state.allColumns = !state.allColumns; list.setColumns(columns(measureName())); listRows(); });
  element("search").addEventListener("input", () => { state.search = selected("search").trim().toLowerCase(); listRows(); });

  const measureName = () => page.measures[state.measure].name;

  async function follow() {
    const before = state.measure;
    Object.assign(state, {
      data: selected("data-set") === "" ? null : Number(selected("data-set")),
      type: selected("type") === "" ? null : Number(selected("type")),
      measure: Number(selected("measure")), x: selected("x"), y: selected("y"),
    });
    if (state.measure !== before) values = await page.valuesOf(state.measure);
    update();
  }

  // ---- views

  const list = makeList(element("list"), { onChoose: row => choose(row, "list") });
  const scatter = makeScatter(element("scatter"), tip, {
    describe: row => ({
      title: queries.ids[row],
      values: [
        [axisName(state.y), show(yOf()(row), digits())],
        [axisName(state.x), xIsSystem() || state.x === "q:expected" ? show(xOf()(row), digits()) : showCount(xOf()(row))],
        ...(isPair() ? [["difference", show(gapOf()(row), digits(), true)]] : []),
        ...(page.dataSets.length > 1 ? [["data set", dataName(row)]] : []),
        ...(queries.type[row] ? [["type", typeName(row)]] : []),
        ["items", `${showCount(queries.items[row])}, ${showCount(queries.relevant[row])} relevant`],
      ],
    }),
    onChoose: row => choose(row, "scatter"),
    onStep: (row, step) => list.neighbor(row, step),
  });
  const pairs = page.pairDigits ? makePairs(element("pairs"), tip, {
    onSelect: (row, column) => {
      element("y").value = `s:${systems[row]}`;
      element("x").value = `s:${systems[column]}`;
      follow();
      element("scatter-panel").scrollIntoView({ block: "nearest" });
    },
  }) : null;
  const figures = watchFigures(() => ({
    dataSet: state.data === null ? null : { name: page.dataSets[state.data], ...page.sources[state.data] },
    type: state.type === null ? null : page.types[state.type],
  }));

  function choose(row, from) {
    scatter.choose(row);
    list.choose(row);
    if (from === "scatter") {
      if (state.search && !lowerIds[row].includes(state.search)) {
        element("search").value = state.search = "";
        listRows();
      }
      list.scrollTo(row, false);
      element("list").scrollIntoView({ block: "nearest" });
    } else element("scatter-panel").scrollIntoView({ block: "nearest" });
  }

  function update() {
    const measure = measureName();
    rows = [];
    const shown = new Uint8Array(queries.count);
    for (let row = 0; row < queries.count; row++) {
      if ((state.data === null || queries.data[row] === state.data) && (state.type === null || queries.type[row] === state.type)) {
        rows.push(row);
        shown[row] = 1;
      }
    }
    element("shown").textContent = `${showCount(rows.length)} of ${showCount(queries.count)} queries`;
    element("scale").textContent = page.measures[state.measure].scale;
    element("scatter-title").textContent = `${measure}: ${axisName(state.y)} against ${axisName(state.x)}`;
    element("scatter").setAttribute("aria-label", `Scatter of ${rows.length} queries: ${measure} of ${axisName(state.y)} against ${axisName(state.x)}`);
    scatter.update({
      rows, shown, xs: xOf(), ys: yOf(), types: queries.type, colors: TYPE_COLORS, diagonal: xIsSystem(),
      logX: state.x === "q:items" || state.x === "q:relevant",
      xTitle: xIsSystem() ? `${measure}, ${axisName(state.x)}` : state.x === "q:expected" ? `expected ${page.plainLead} of a random ranking` : axisName(state.x),
      yTitle: `${measure}, ${axisName(state.y)}`,
    });
    drawPanels(measure);
    if (pairs) drawPairs(measure);
    list.setColumns(columns(measure));
    listRows();
    const names = state.data === null ? null : [page.dataSets[state.data], page.sources[state.data].data];
    for (const line of document.querySelectorAll("tr[data-set]")) line.hidden = names !== null && !names.includes(line.dataset.set);
    limitTables();
    figures.filter();
  }

  function drawPanels(measure) {
    const turn = page.measures[state.measure].lower ? 1 : -1;
    const means = systems.map((name, index) => ({ name, ...meanOf(valueOf(index), rows, page.quantile) })).sort((a, b) => turn * (a.mean - b.mean));
    ranking = means.map(({ name }) => systems.indexOf(name));
    element("means-title").textContent = `Mean ${measure} over the queries shown`;
    drawIntervals(element("means"), means, tip, {
      confidence: page.confidence,
      most: state.allMeans ? Infinity : MEANS, always: [axisName(state.x), axisName(state.y)],
      onMore: () => { state.allMeans = true; drawPanels(measure); },
    });
    const pair = isPair(), value = pair ? gapOf() : yOf();
    element("by-type-title").textContent = `${axisName(state.y)}${pair ? ` minus ${axisName(state.x)}` : ""}, by type of query`;
    const groups = [{ name: "all shown", ...meanOf(value, rows, page.quantile) }];
    for (const [code, name] of types) groups.push({ name, ...meanOf(value, rows.filter(row => queries.type[row] === code), page.quantile, page.fewest) });
    drawIntervals(element("by-type"), groups, tip, { confidence: page.confidence, sign: pair, zero: pair });
  }

  async function drawPairs(measure) {
    const index = state.measure, dataSet = state.data ?? 0, count = systems.length, triangle = count * (count - 1) / 2;
    const { levels, gaps } = await page.pairsOf(index);
    if (index !== state.measure) return; // another measure was selected in the meantime
    const at = (first, second) => dataSet * triangle + first * count - first * (first + 1) / 2 + second - first - 1;
    const everywhere = Array.from(queries.data.keys()).filter(row => queries.data[row] === dataSet);
    const lower = page.measures[index].lower, means = systems.map((_, system) => meanOf(valueOf(system), everywhere).mean);
    const order = systems.map((_, system) => system).filter(system => Number.isFinite(means[system]));
    order.sort((a, b) => (lower ? 1 : -1) * (means[a] - means[b]));
    const known = levels.subarray(dataSet * triangle, (dataSet + 1) * triangle).filter(Number.isFinite);
    const significant = known.filter(level => level < page.alpha).length;
    const where = page.dataSets.length > 1 ? ` on ${page.dataSets[dataSet]}` : "";
    element("pairs-title").textContent = `${measure}${where}: ${showCount(significant)} of ${showCount(known.length)} pairs of systems differ significantly`;
    element("pairs").setAttribute("aria-label", element("pairs-title").textContent);
    pairs.update({
      names: systems, order, lower, alpha: page.alpha, digits: Math.max(0, page.pairDigits[index][1]),
      pAt: (row, column) => levels[row < column ? at(row, column) : at(column, row)],
      gapAt: (row, column) => row < column ? gaps[at(row, column)] : -gaps[at(column, row)],
    });
  }

  function columns(measure) {
    const number = (key, name, value, showing, width) => ({ key, name, value, show: row => showing(value(row)), width });
    const pair = isPair(), gap = gapOf(), shown = value => show(value, digits());
    return [
      { key: "id", name: "query", text: true, value: row => queries.ids[row], show: row => queries.ids[row], width: 9 },
      ...(page.dataSets.length > 1 ? [{ key: "data", name: "data set", text: true, value: dataName, show: dataName, width: 10 }] : []),
      ...(types.length ? [{
        key: "type", name: "type", text: true, value: typeName, show: typeName, width: 9,
        style: (cell, row) => { cell.className = "type"; cell.style.setProperty("--dot", `var(${TYPE_COLORS[queries.type[row]]})`); },
      }] : []),
      number("items", "items", row => queries.items[row], showCount, 5.5),
      number("relevant", "relevant", row => queries.relevant[row], showCount, 5.5),
      ...(pair ? [{
        ...number("gap", `${axisName(state.y)} − ${axisName(state.x)}`, gap, value => show(value, digits(), true), 9),
        style: (cell, row) => { const value = gap(row); if (value) cell.classList.add(value > 0 ? "up" : "down"); },
      }] : []),
      ...systemsInList().map(index => number(`system-${index}`, `${measure}, ${systems[index]}`, valueOf(index), shown, 8)),
    ];
  }

  // All systems in the table's order, or the ones on the axes and the best of the others.
  function systemsInList() {
    const button = element("all-columns");
    button.hidden = systems.length <= COLUMNS;
    button.textContent = state.allColumns ? `Show the best ${COLUMNS} systems` : `Show all ${showCount(systems.length)} systems`;
    if (state.allColumns || systems.length <= COLUMNS) return systems.map((_, index) => index);
    const onAxes = [state.y, state.x].filter(axis => axis.startsWith("s:")).map(axis => systems.indexOf(axis.slice(2)));
    return [...new Set([...onAxes, ...ranking])].slice(0, COLUMNS);
  }

  function listRows() {
    const listed = state.search ? rows.filter(row => lowerIds[row].includes(state.search)) : rows;
    element("listed").textContent = state.search ? `${showCount(listed.length)} found` : "";
    list.setRows(listed);
  }

  for (const [code, name] of types) {
    const item = document.createElement("li"), dot = document.createElement("i");
    dot.style.background = `var(${TYPE_COLORS[code]})`;
    item.append(dot, name);
    element("legend").append(item);
  }
  update();
  window.rankbound = { state, pointOf: scatter.pointOf, cellOf: pairs?.cellOf };
}

function fill(id, choices) {
  element(id).replaceChildren(...choices.map(([value, name]) => {
    const option = document.createElement("option");
    option.value = value;
    option.textContent = name;
    return option;
  }));
}

// Tables show their first rows that pass the filter, and all of them on request.
function limitTables() {
  for (const button of document.querySelectorAll(".show-all")) {
    const lines = [...button.previousElementSibling.querySelectorAll("tbody tr")].filter(line => !line.hidden);
    const all = button.getAttribute("aria-expanded") === "true", shown = Number(button.dataset.shown);
    lines.forEach((line, index) => line.classList.toggle("rest", !all && index >= shown));
    button.hidden = lines.length <= shown;
    button.textContent = all ? "Show fewer rows" : `Show all ${showCount(lines.length)} rows`;
  }
}

for (const button of document.querySelectorAll(".show-all")) {
  button.addEventListener("click", () => {
    button.setAttribute("aria-expanded", button.getAttribute("aria-expanded") !== "true");
    limitTables();
  });
}
if (element("page")) await start();
else watchFigures(() => ({ dataSet: null, type: null }));
document.documentElement.dataset.ready = "true";
