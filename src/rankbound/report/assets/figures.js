// Vega-Lite figures: unpacked and drawn when they come near the view, and drawn again when the filter changes.

const WIDE = 640; // pixels; a wider figure takes a whole row

function watchFigures(filterNow) {
  let library = null;
  const drawn = new Map(); // figure element -> its specification

  function loadLibrary() {
    library ??= inflate("page-vega").then(buffer => {
      const script = document.createElement("script");
      script.type = "module";
      script.textContent = `${new TextDecoder().decode(buffer)};document.dispatchEvent(new Event("vega-ready"));`;
      const ready = new Promise(resolve => document.addEventListener("vega-ready", resolve, { once: true }));
      document.head.append(script);
      return ready;
    });
    return library;
  }

  // Whether a row of a chart's data passes the filter. Rows without a data set or a type always do.
  function passes(row, { dataSet, type }) {
    if (dataSet !== null) {
      if (row.panel !== undefined && row.panel !== dataSet.name) return false;
      if (row.data !== undefined && row.data !== dataSet.data) return false;
      if (row.variant !== undefined && row.variant !== dataSet.variant) return false;
    }
    return type === null || row.type === undefined || row.type === type;
  }

  const tables = specification => Object.entries(specification.datasets ?? {}).filter(([, rows]) => Array.isArray(rows));

  // whether the filter concerns any data of the figure
  const isAffected = (specification, { dataSet, type }) => tables(specification).some(([, [row = {}]]) =>
    (dataSet !== null && (row.panel ?? row.data) !== undefined) || (type !== null && row.type !== undefined));

  async function draw(figure) {
    const specification = drawn.get(figure), filter = filterNow(), holder = figure.querySelector(".drawing");
    const passing = Object.fromEntries(tables(specification).map(([name, rows]) => [name, rows.filter(row => passes(row, filter))]));
    const filtered = isAffected(specification, filter);
    figure.querySelector(".tag").hidden = !filtered;
    if (filtered && Object.values(passing).every(rows => !rows.length)) {
      holder.textContent = "No query passes the filter here.";
      return;
    }
    await window.rankboundEmbed(holder, { ...specification, datasets: { ...specification.datasets, ...passing } }, {
      renderer: "svg", logLevel: 1, actions: { export: true, source: false, compiled: false, editor: false }, downloadFileName: figure.id,
    });
    const width = Number(holder.querySelector("svg")?.getAttribute("width")) || 0;
    holder.style.setProperty("--natural", `${width}px`);
    figure.classList.toggle("wide", width > WIDE);
    figure.dataset.drawn = "true";
  }

  const watcher = new IntersectionObserver(entries => {
    for (const entry of entries.filter(({ isIntersecting }) => isIntersecting)) {
      watcher.unobserve(entry.target);
      const figure = entry.target;
      Promise.all([inflate(`${figure.id}-chart`), loadLibrary()]).then(([buffer]) => {
        drawn.set(figure, JSON.parse(new TextDecoder().decode(buffer)));
        return draw(figure);
      }).catch(error => { figure.querySelector(".drawing").textContent = `This browser cannot draw the figure: ${error.message}`; });
    }
  }, { rootMargin: "300px" });
  for (const figure of document.querySelectorAll("figure[data-chart]")) watcher.observe(figure);

  let last = filterNow();
  return {
    filter() {
      const now = filterNow();
      for (const [figure, specification] of drawn) {
        if (isAffected(specification, now) || isAffected(specification, last)) draw(figure);
      }
      last = now;
    },
  };
}
