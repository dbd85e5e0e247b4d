// The tooltip, and rows of means with their intervals.

const MEANS = 15; // rows of means, unless all are requested

function makeTip(box) {
  return {
    show({ title, values }, x, y) {
      const heading = document.createElement("b"), list = document.createElement("dl");
      heading.textContent = title;
      for (const [name, value] of values) {
        const term = document.createElement("dt"), detail = document.createElement("dd");
        term.textContent = name;
        detail.textContent = value;
        list.append(term, detail);
      }
      box.replaceChildren(heading, list);
      box.hidden = false;
      const size = box.getBoundingClientRect();
      box.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - size.width - 8))}px`;
      box.style.top = `${y + size.height + 24 > innerHeight ? Math.max(8, y - size.height - 14) : y + 14}px`;
    },
    hide() { box.hidden = true; },
  };
}

// rows: [{name, n, mean, low, high}]; zero draws the line of no difference. Beyond the first `most` rows only those named
// in `always` are drawn, and a button calls onMore.
function drawIntervals(holder, rows, tip, { confidence, digits = 3, sign = false, zero = false, most = Infinity, always = [], onMore } = {}) {
  const known = rows.filter(row => row.n > 0);
  if (!known.length) {
    holder.textContent = "No query has a value here.";
    return;
  }
  const drawn = known.filter((row, index) => index < most || always.includes(row.name));
  const ends = drawn.flatMap(row => [row.mean, row.low, row.high]).filter(Number.isFinite).concat(zero ? [0] : []);
  let [low, high] = [Math.min(...ends), Math.max(...ends)];
  const slack = (high - low || 1) * 0.04;
  [low, high] = [low - slack, high + slack];
  const at = value => `${(100 * (value - low) / (high - low)).toFixed(3)}%`;
  const make = (kind, ...children) => {
    const node = document.createElement("div");
    node.className = kind;
    node.append(...children);
    return node;
  };
  const level = `${Number((100 * confidence).toPrecision(4))} %`;
  const grid = make("intervals");
  grid.setAttribute("role", "list");
  for (const row of drawn) {
    const track = make("track"), dot = make("dot"), span = make("span");
    if (zero) {
      const line = make("zero");
      line.style.left = at(0);
      track.append(line);
    }
    if (Number.isFinite(row.low)) {
      span.style.left = at(row.low);
      span.style.width = `calc(${at(row.high)} - ${at(row.low)})`;
      track.append(span);
    }
    dot.style.left = at(row.mean);
    track.append(dot);
    const line = make("row", make("name", row.name), track, make("value", show(row.mean, digits, sign)));
    const interval = Number.isFinite(row.low) ? `${show(row.low, digits, sign)} to ${show(row.high, digits, sign)}` : "–";
    line.tabIndex = 0;
    line.setAttribute("role", "listitem");
    line.setAttribute("aria-label", `${row.name}: ${show(row.mean, digits, sign)}, ${level} interval ${interval}, ${row.n} queries`);
    const content = { title: row.name, values: [["mean", show(row.mean, digits, sign)], [`${level} interval`, interval], ["queries", showCount(row.n)]] };
    const showTip = () => {
      const box = track.getBoundingClientRect();
      tip.show(content, box.left + box.width / 2, box.bottom);
    };
    for (const name of ["pointerenter", "focus"]) line.addEventListener(name, showTip);
    for (const name of ["pointerleave", "blur"]) line.addEventListener(name, tip.hide);
    grid.append(line);
  }
  grid.append(make("scale", show(low + slack, digits, sign), show(high - slack, digits, sign)));
  grid.lastChild.style.display = "flex";
  for (const node of [...grid.lastChild.childNodes]) {
    const end = document.createElement("span");
    end.textContent = node.textContent;
    node.replaceWith(end);
  }
  holder.replaceChildren(grid);
  if (known.length > most) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "quiet more";
    button.textContent = `Show all ${showCount(known.length)} systems`;
    button.addEventListener("click", onMore);
    holder.append(button);
  }
}
