// The list of queries: it can be sorted, and only the rows in view exist as elements.

const ROW = 34; // height in pixels, as in the style sheet
const SPARE = 8; // rows above and below the view

function makeList(box, { onChoose }) {
  const table = box.querySelector("table"), head = table.tHead, body = table.tBodies[0];
  let columns = [], order = [], sort = { key: null, down: false }, selected = -1, indexOf = new Map(), allRows = [];

  function arrange(rows) {
    allRows = rows;
    const column = columns.find(({ key }) => key === sort.key);
    order = Array.from(rows);
    if (column) {
      const turn = sort.down ? -1 : 1, value = column.value;
      if (column.text) order.sort((a, b) => turn * COLLATOR.compare(value(a), value(b)) || a - b);
      else order.sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y) || a - b; // queries without a value go last
        return turn * (x - y) || a - b;
      });
    }
    indexOf = new Map(order.map((row, index) => [row, index]));
    table.setAttribute("aria-rowcount", order.length + 1);
    draw();
  }

  function drawHead() {
    const line = document.createElement("tr");
    table.querySelector("colgroup")?.remove();
    const widths = document.createElement("colgroup");
    for (const column of columns) {
      const width = document.createElement("col"), cell = document.createElement("th"), button = document.createElement("button");
      width.style.width = `${column.width}rem`;
      widths.append(width);
      cell.scope = "col";
      if (!column.text) cell.className = "number";
      cell.setAttribute("aria-sort", column.key === sort.key ? (sort.down ? "descending" : "ascending") : "none");
      button.type = "button";
      button.textContent = column.name;
      button.title = column.name;
      button.dataset.key = column.key;
      button.addEventListener("click", () => {
        // numbers start with the largest, words with the first of the alphabet
        sort = { key: column.key, down: sort.key === column.key ? !sort.down : !column.text };
        drawHead();
        arrange(allRows);
        box.scrollTop = 0;
        head.querySelector(`[data-key="${CSS.escape(column.key)}"]`).focus();
      });
      cell.append(button);
      line.append(cell);
    }
    table.prepend(widths);
    table.style.width = `${columns.reduce((sum, column) => sum + column.width, 0)}rem`;
    head.replaceChildren(line);
  }

  function draw() {
    const first = Math.max(0, Math.floor(box.scrollTop / ROW) - SPARE);
    const last = Math.min(order.length, first + Math.ceil((box.clientHeight || 480) / ROW) + 2 * SPARE);
    const focused = document.activeElement?.closest?.("tr.query")?.dataset.row;
    const lines = [gap(first)];
    for (let index = first; index < last; index++) lines.push(drawRow(order[index], index));
    body.replaceChildren(...lines, gap(order.length - last));
    if (focused !== undefined) body.querySelector(`tr[data-row="${focused}"]`)?.focus({ preventScroll: true });
  }

  function gap(rows) {
    const line = document.createElement("tr"), cell = document.createElement("td");
    line.setAttribute("aria-hidden", "true");
    cell.className = "gap";
    cell.colSpan = columns.length;
    cell.style.height = `${rows * ROW}px`;
    line.append(cell);
    return line;
  }

  function drawRow(row, index) {
    const line = document.createElement("tr");
    line.className = "query";
    line.tabIndex = 0;
    line.dataset.row = row;
    line.setAttribute("aria-rowindex", index + 2);
    line.setAttribute("aria-selected", row === selected);
    for (const column of columns) {
      const cell = document.createElement("td");
      cell.textContent = column.show(row);
      if (!column.text) cell.className = "number";
      column.style?.(cell, row);
      line.append(cell);
    }
    line.firstChild.title = line.firstChild.textContent;
    return line;
  }

  function scrollTo(row, focus) {
    const index = indexOf.get(row);
    if (index === undefined) return;
    const top = index * ROW, header = head.offsetHeight, view = box.clientHeight - header;
    if (top < box.scrollTop || top + ROW > box.scrollTop + view) box.scrollTop = Math.max(0, top - view / 2);
    draw();
    if (focus) body.querySelector(`tr[data-row="${row}"]`)?.focus({ preventScroll: true });
  }

  box.addEventListener("scroll", () => requestAnimationFrame(draw));
  body.addEventListener("click", event => {
    const line = event.target.closest("tr.query");
    if (line) onChoose(Number(line.dataset.row));
  });
  body.addEventListener("keydown", event => {
    const line = event.target.closest("tr.query");
    if (!line) return;
    const row = Number(line.dataset.row), step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      onChoose(row);
    } else if (step) {
      event.preventDefault();
      const next = order[indexOf.get(row) + step];
      if (next !== undefined) scrollTo(next, true);
    }
  });

  return {
    setColumns(next) {
      columns = next;
      if (!columns.some(column => column.key === sort.key)) sort = { key: null, down: false };
      drawHead();
    },
    setRows: arrange,
    choose(row) {
      selected = row;
      draw();
    },
    scrollTo,
    neighbor(row, step) {
      const index = indexOf.get(row);
      if (index === undefined) return order[0] ?? -1;
      return order[Math.min(order.length - 1, Math.max(0, index + step))];
    },
  };
}

const COLLATOR = new Intl.Collator("en", { numeric: true });
