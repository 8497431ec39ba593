"use strict";
// The maps of each section, drawn again on canvases that zoom and answer. All maps of a section have one view, so that
// one raster, which spot owns each pixel, is enough to colour them all and to know which spot is under the pointer.
// Without this script, or in a browser that lacks what it needs, and on paper, the page shows its pictures.
(() => {
const MOST_NAMES = 60; // of a legend
const FADED = 0x26; // opacity of what is not lit up, of 255
const WIDEST = 90; // pixels of a spot in the nearest view
const KINDS = {1: Uint8Array, 2: Uint16Array, 4: Uint32Array};
const opened = [];

function make(tag, settings = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(settings)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

async function unpacked(text) {
  const signs = atob(text), bytes = new Uint8Array(signs.length);
  for (let i = 0; i < signs.length; i++) bytes[i] = signs.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

// Columns are typed arrays over one buffer; coordinates are stored as differences.
async function columnsOf(data) {
  const buffer = await unpacked(data.data), columns = {};
  let at = 0;
  for (const [name, size] of data.columns) {
    columns[name] = new KINDS[size](buffer, at, data.rows);
    at += Math.ceil(data.rows * size / 4) * 4;
  }
  for (const axis of ["x", "y"]) {
    const values = columns[axis];
    for (let i = 1; i < values.length; i++) values[i] += values[i - 1]; // modulo 65,536, as it was stored
  }
  return columns;
}

const rgb = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
const packed = ([r, g, b], opacity = 255) => ((opacity << 24) | (b << 16) | (g << 8) | r) >>> 0;

// The colour of each value that a column can have.
function tableOf(layer, data) {
  if (layer.names) return [data.unlabelled, ...layer.colours].map((colour) => packed(rgb(colour)));
  const stops = layer.gradient.map(rgb), table = [];
  for (let value = 0; value < 256; value++) {
    const share = (value / layer.steps - layer.low) / (layer.high - layer.low);
    const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1), below = Math.min(Math.floor(place), stops.length - 2);
    table.push(packed(stops[below].map((low, i) => Math.round(low + (place - below) * (stops[below + 1][i] - low)))));
  }
  return table;
}

const shown = (layer, value) => (value / layer.steps).toFixed(layer.steps === 100 ? 2 : 1);
const percent = (hundredths) => `${hundredths}%`;
const counted = (n) => n.toLocaleString("en-US");

class Section {
  constructor(data, columns, names, maps) {
    Object.assign(this, {data, columns, names, maps, panels: [], view: {zoom: 1, x: 0, y: 0}, lit: null, width: 0, height: 0});
    this.layers = new Map(data.layers.map((layer) => [layer.column, layer]));
    this.tables = new Map(data.layers.map((layer) => [layer.column, tableOf(layer, data)]));
    const widest = Math.max(...data.sections.map((own) => own.reach));
    this.nearest = Math.min(Math.max(8, WIDEST / 2 / (widest * 400 / Math.max(...data.size))), 1000);
    this.told = make("p", {className: "soft told"});
    this.facts = make("div", {className: "facts", hidden: true, role: "status"});
    this.whole = maps.closest("section").parentElement; // with the tables of the same section
    this.build();
  }

  build() {
    const button = (text, words, act) => make("button", {type: "button", title: words, "aria-label": words, onclick: act}, text);
    this.tools = make("div", {className: "tools"},
      button("+", "Zoom in", () => this.zoom(1.6)), button("−", "Zoom out", () => this.zoom(1 / 1.6)),
      button("Whole section", "Show the whole section", () => this.reset()), this.told);
    this.maps.before(this.tools);
    for (const figure of this.maps.querySelectorAll("figure")) this.panels.push(new Panel(this, figure));
    document.body.append(this.facts);
    for (const name of this.whole.querySelectorAll("[data-domain]")) {
      const code = Number(name.dataset.domain) + 1;
      const pick = () => {
        this.light("domain", code);
        const {top, bottom} = this.maps.getBoundingClientRect();
        if (this.lit && (top > window.innerHeight || bottom < 0)) this.tools.scrollIntoView();
      };
      Object.assign(name, {tabIndex: 0, role: "button", onclick: pick});
      name.classList.add("pick");
      name.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pick(); }
      });
    }
    new ResizeObserver(() => this.resize()).observe(this.panels[0].canvas);
    this.light(null);
  }

  resize() {
    const box = this.panels[0].canvas.getBoundingClientRect(), ratio = Math.min(window.devicePixelRatio || 1, 2);
    const width = Math.round(box.width * ratio), height = Math.round(box.height * ratio);
    if (!width || !height || (width === this.width && height === this.height)) return;
    Object.assign(this, {width, height, owner: new Int32Array(width * height), far: new Float32Array(width * height)});
    for (const panel of this.panels) Object.assign(panel.canvas, {width, height});
    this.move(0, 0);
  }

  // Draws once before the browser paints next, however often it is asked.
  draw({moved = false} = {}) {
    this.stale = this.stale || moved;
    if (this.asked) return;
    this.asked = requestAnimationFrame(() => {
      this.asked = 0;
      if (!this.width) return;
      if (this.stale) this.rasterise();
      this.stale = false;
      for (const panel of this.panels) panel.paint();
      this.place();
    });
  }

  get scale() { // pixels per step of the coordinates
    const [across, up] = this.data.size;
    return this.view.zoom * Math.min(this.width / across, this.height / up);
  }

  // Each pixel belongs to the spot that is nearest to it and reaches it: markers tile, and never hide one another.
  rasterise() {
    const {width, height, owner, far, scale, view} = this, {x: xs, y: ys} = this.columns, {sections, rows} = this.data;
    owner.fill(-1);
    far.fill(Infinity);
    sections.forEach((own, number) => {
      const end = number + 1 < sections.length ? sections[number + 1].start : rows;
      // markers that tile overlap by a pixel, and every spot reaches the middle of one pixel at least
      const reach = Math.max(own.reach * scale + (own.shape === "disc" ? 0 : 0.5), 0.72);
      const square = own.shape === "square", most = reach * reach;
      for (let i = own.start; i < end; i++) {
        const cx = (xs[i] - view.x) * scale - 0.5, cy = (ys[i] - view.y) * scale - 0.5;
        if (cx < -reach || cy < -reach || cx > width + reach || cy > height + reach) continue;
        const x0 = Math.max(0, Math.ceil(cx - reach)), x1 = Math.min(width - 1, Math.floor(cx + reach));
        const y0 = Math.max(0, Math.ceil(cy - reach)), y1 = Math.min(height - 1, Math.floor(cy + reach));
        for (let y = y0; y <= y1; y++) {
          const dy = (y - cy) * (y - cy);
          for (let x = x0, at = y * width + x0; x <= x1; x++, at++) {
            const distance = dy + (x - cx) * (x - cx);
            if (distance < far[at] && (square || distance <= most)) { far[at] = distance; owner[at] = i; }
          }
        }
      }
    });
  }

  // Changes the view; `x` and `y` are the place that stays where it is, in shares of the map.
  zoom(factor, x = 0.5, y = 0.5) {
    const {view, width, height} = this, old = this.scale;
    view.zoom = Math.min(Math.max(view.zoom * factor, 1), this.nearest);
    const fewer = 1 / old - 1 / this.scale; // steps in each pixel
    this.move(x * width * fewer, y * height * fewer);
  }

  // Moves the view by steps of the coordinates; a side of the picture that is all within the map is in its middle.
  move(dx, dy) {
    const {view, width, height, scale, data: {size}} = this;
    const within = (place, whole, seen) => (seen < whole ? Math.min(Math.max(place, 0), whole - seen) : (whole - seen) / 2);
    view.x = within(view.x + dx, size[0], width / scale);
    view.y = within(view.y + dy, size[1], height / scale);
    for (const panel of this.panels) panel.canvas.style.touchAction = view.zoom > 1 ? "none" : "pan-y";
    this.draw({moved: true});
  }

  reset() { this.zoom(0); }

  // The spot at a place of a map, in shares of the map; -1 where there is none.
  at(x, y) {
    const column = Math.floor(x * this.width), row = Math.floor(y * this.height);
    if (!this.owner || column < 0 || row < 0 || column >= this.width || row >= this.height) return -1;
    return this.owner[row * this.width + column];
  }

  // Lights up all spots with a label, or lets go of them: `column` names the layer, `code` the label.
  light(column, code) {
    const again = this.lit && this.lit.column === column && this.lit.code === code;
    this.lit = column === null || again ? null : {column, code};
    for (const panel of this.panels) { panel.colours = null; panel.mark(); }
    for (const name of this.whole.querySelectorAll("[data-domain]")) {
      const on = this.lit !== null && column === "domain" && Number(name.dataset.domain) + 1 === code;
      name.setAttribute("aria-pressed", on);
    }
    this.tell();
    this.draw();
  }

  tell() {
    const {data, lit} = this;
    if (lit) {
      const {word, names} = this.layers.get(lit.column), codes = this.columns[lit.column], sizes = this.columns.spots;
      let n = 0;
      for (let i = 0; i < codes.length; i++) if (codes[i] === lit.code) n += sizes ? sizes[i] : 1;
      const spots = `${counted(n)} spots${sizes ? " in squares where it is the most frequent" : ""}`;
      this.told.textContent = `${word[0].toUpperCase()}${word.slice(1)} ${names[lit.code - 1]} is lit up: ${spots}. ` +
        "Click it again, or press Escape, to let go.";
      return;
    }
    const sides = [...new Set(data.sections.map((own) => own.side))].sort((a, b) => a - b);
    const binned = `These are ${counted(data.spots)} spots, too many to be in this page one by one: each square holds those within ${
      sides.join(" or ")} spots' distance across, and shows their most frequent labels and the means of their numbers. `;
    this.told.textContent = (sides[0] ? binned : "") + "Wheel or pinch to zoom, drag to move, double click for the whole; click a domain to light it up.";
  }

  // Shows what is known of a spot beside a place of the window, and where it is on every map.
  point(i, left, top, panel) {
    this.pointed = i;
    this.place();
    this.facts.hidden = i < 0;
    if (i < 0) return;
    this.facts.replaceChildren(...this.linesOf(i, panel));
    const {offsetWidth: width, offsetHeight: height} = this.facts;
    const right = left + 16 + width < document.documentElement.clientWidth;
    this.facts.style.left = `${Math.max(0, right ? left + 16 : left - 16 - width)}px`;
    this.facts.style.top = `${Math.max(0, Math.min(top + 12, window.innerHeight - height - 4))}px`;
  }

  // Rings on all maps around the spot under the pointer.
  place() {
    const {data, columns, view} = this, i = this.pointed ?? -1;
    const number = data.sections.findLastIndex((own) => own.start <= i);
    for (const {ring, canvas} of this.panels) {
      ring.hidden = i < 0;
      if (i < 0) continue;
      const scale = this.scale * canvas.clientWidth / this.width, size = Math.max(10, 2.2 * data.sections[number].reach * scale);
      ring.style.width = ring.style.height = `${size}px`;
      ring.style.left = `${(columns.x[i] - view.x) * scale - size / 2}px`;
      ring.style.top = `${(columns.y[i] - view.y) * scale - size / 2}px`;
    }
  }

  linesOf(i, panel) {
    const {data, columns} = this, several = columns.spots ? columns.spots[i] : 0;
    const lines = [make("b", {}, several ? `${counted(several)} ${several === 1 ? "spot" : "spots"}` : this.names[i])];
    const say = (word, text) => lines.push(make("div", {}, make("span", {className: "soft"}, `${word} `), text));
    const number = data.sections.findLastIndex((own) => own.start <= i);
    if (data.sections.length > 1) say("section", data.sections[number].name);
    const mixed = (name) => (several > 1 ? ` (${percent(columns[`share of ${name}`][i])})` : "");
    for (const {column, word, names, steps} of data.layers) {
      const value = columns[column][i];
      if (column === "state") continue;
      if (names) say(word, value ? names[value - 1] + mixed(column) : "none" + mixed(column));
      else if (steps === 100) say(word, shown({steps}, value));
    }
    if (columns.state) {
      const parts = [];
      for (let place = 0; columns[`share of state ${place}`]; place++) {
        const share = columns[`share of state ${place}`][i], state = columns[place ? `state ${place}` : "state"][i];
        if (share) parts.push(`${this.layers.get("state").names[state - 1]} (${percent(share)})`);
      }
      say(parts.length > 1 ? "states" : "state", parts.join(", "));
      if (data.composition) lines.push(this.barOf(data.composition[columns.domain[i] - 1]));
    }
    const {layer} = panel;
    if (layer.steps === 10) say(layer.word, shown(layer, columns[layer.column][i]));
    return lines;
  }

  // The composition of a domain, as a bar of its states.
  barOf(shares) {
    const {colours} = this.layers.get("state");
    const bar = make("div", {className: "states"});
    shares.forEach((share, state) => {
      const part = make("span");
      Object.assign(part.style, {flexGrow: share, background: colours[state]});
      bar.append(part);
    });
    return make("div", {}, make("span", {className: "soft"}, "states of its domain"), bar);
  }
}

class Panel {
  constructor(section, figure) {
    this.section = section;
    this.layer = section.layers.get(figure.dataset.layer);
    this.canvas = make("canvas", {tabIndex: 0, role: "img"});
    this.ring = make("span", {className: "ring", hidden: true});
    const [across, up] = section.data.size, frame = make("div", {className: "window"}, this.canvas, this.ring);
    frame.style.aspectRatio = `${across} / ${up}`;
    this.legend = make("div");
    const genes = make("optgroup", {label: "Marker genes"});
    this.select = make("select", {"aria-label": "What this map shows", onchange: () => this.choose(this.select.value)});
    for (const layer of section.data.layers) {
      (layer.steps === 10 ? genes : this.select).append(make("option", {value: layer.column}, layer.title));
    }
    if (genes.children.length) this.select.append(genes);
    this.select.value = this.layer.column;
    const live = make("div", {className: "live"}, this.select, frame, this.legend);
    figure.append(live);
    figure.classList.add("drawn");
    this.listen();
    this.choose(this.layer.column);
  }

  choose(column) {
    this.layer = this.section.layers.get(column);
    this.colours = null;
    this.canvas.setAttribute("aria-label", `Map: ${this.layer.title}. Arrow keys move it, plus and minus zoom, 0 shows the ` +
      "whole, Enter lights up the domain in the middle, Escape lets go.");
    this.explain();
    this.section.draw();
  }

  explain() {
    const {layer, section} = this, codes = section.columns[layer.column];
    if (!layer.names) {
      const bar = make("span", {className: "bar"}), end = layer.unit;
      bar.style.background = `linear-gradient(to right, ${layer.gradient.join(",")})`;
      this.legend.replaceChildren(make("div", {className: "scale"}, layer.low.toFixed(1), bar, `${layer.high.toFixed(1)} ${end}`));
      return;
    }
    const list = make("ul", {className: "legend"});
    const entry = (colour, name) => {
      const swatch = make("span", {className: "swatch"});
      swatch.style.background = colour;
      return [swatch, name];
    };
    layer.names.slice(0, MOST_NAMES).forEach((name, k) => {
      const pick = make("button", {type: "button", className: "pick", onclick: () => section.light(layer.column, k + 1)});
      pick.append(...entry(layer.colours[k], name));
      pick.dataset.code = k + 1;
      list.append(make("li", {}, pick));
    });
    if (layer.names.length > MOST_NAMES) list.append(make("li", {}, `and ${counted(layer.names.length - MOST_NAMES)} more`));
    if (codes.includes(0)) list.append(make("li", {}, ...entry(section.data.unlabelled, "unlabelled")));
    this.legend.replaceChildren(list);
    this.mark();
  }

  mark() {
    const {lit} = this.section;
    for (const pick of this.legend.querySelectorAll("button")) {
      pick.setAttribute("aria-pressed", lit !== null && lit.column === this.layer.column && lit.code === Number(pick.dataset.code));
    }
  }

  // The colour of each spot, faded where another label is lit up.
  colourSpots() {
    const {layer, section} = this, {columns, lit} = section;
    const values = columns[layer.column], table = Uint32Array.from(section.tables.get(layer.column));
    const chosen = lit && columns[lit.column];
    this.colours = new Uint32Array(values.length);
    for (let i = 0; i < values.length; i++) {
      const colour = table[values[i]];
      this.colours[i] = chosen && chosen[i] !== lit.code ? (colour & 0xffffff) | (FADED << 24) : colour;
    }
  }

  paint() {
    const {section, canvas} = this, {owner, width, height} = section;
    if (!this.colours) this.colourSpots();
    const {colours} = this, context = canvas.getContext("2d"), image = context.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    for (let at = 0; at < pixels.length; at++) if (owner[at] >= 0) pixels[at] = colours[owner[at]];
    context.putImageData(image, 0, 0);
    const ratio = width / canvas.clientWidth, space = section.data.sections[0].top * section.scale; // above each section
    Object.assign(context, {font: `${Math.min(12 * ratio, 0.75 * space)}px sans-serif`, fillStyle: getComputedStyle(canvas).color});
    for (const own of section.data.sections) { // a section alone has no name
      context.fillText(own.name, (own.left - section.view.x) * section.scale, (own.top - section.view.y) * section.scale - 0.2 * space);
    }
    canvas.dataset.drawn = Number(canvas.dataset.drawn ?? 0) + 1;
  }

  // Where an event is, in shares of the map.
  share(event) {
    const box = this.canvas.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  }

  pick(i) {
    const {layer, section} = this, column = layer.names ? layer.column : "domain";
    const code = i < 0 ? 0 : section.columns[column][i];
    if (code) section.light(column, code);
    else section.light(null);
  }

  listen() {
    const {canvas, section} = this, held = new Map();
    let path = 0, wheeled = -Infinity;
    canvas.addEventListener("wheel", (event) => {
      // zooming out of the whole scrolls the page on, but not within the same turn of the wheel
      const whole = section.view.zoom === 1 && event.deltaY > 0 && event.timeStamp - wheeled > 300;
      if (whole || !event.deltaY) return;
      event.preventDefault();
      wheeled = event.timeStamp;
      section.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0018)), ...this.share(event));
      section.point(-1);
    }, {passive: false});
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      canvas.setPointerCapture(event.pointerId);
      held.set(event.pointerId, event);
      path = held.size > 1 ? Infinity : 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = held.get(event.pointerId), [x, y] = this.share(event);
      if (!before) {
        section.point(section.at(x, y), event.clientX, event.clientY, this);
        return;
      }
      const pixels = section.width / canvas.clientWidth / section.scale; // steps in a pixel of the page
      const other = [...held.entries()].find(([id]) => id !== event.pointerId)?.[1];
      if (other) {
        const between = (one) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
        section.zoom(between(event) / Math.max(between(before), 1), x, y);
      } else {
        path += Math.hypot(event.clientX - before.clientX, event.clientY - before.clientY);
      }
      if (path > 4) {
        section.point(-1);
        const part = other ? 2 : 1; // of two fingers each moves the map by half
        section.move((before.clientX - event.clientX) * pixels / part, (before.clientY - event.clientY) * pixels / part);
      }
      held.set(event.pointerId, event);
    });
    const release = (event) => {
      if (!held.delete(event.pointerId) || event.type !== "pointerup" || path > 4) return;
      const i = section.at(...this.share(event));
      this.pick(i);
      section.point(i, event.clientX, event.clientY, this); // a finger has not hovered before
    };
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") section.point(-1); });
    canvas.addEventListener("dblclick", () => section.reset());
    canvas.addEventListener("blur", () => section.point(-1));
    canvas.addEventListener("keydown", (event) => this.press(event));
  }

  press(event) {
    const {section, canvas} = this, step = 0.12 * section.height / section.scale;
    const acts = {
      "ArrowLeft": () => section.move(-step, 0), "ArrowRight": () => section.move(step, 0),
      "ArrowUp": () => section.move(0, -step), "ArrowDown": () => section.move(0, step),
      "+": () => section.zoom(1.6), "=": () => section.zoom(1.6), "-": () => section.zoom(1 / 1.6), "0": () => section.reset(),
      "Enter": () => this.pick(section.at(0.5, 0.5)), " ": () => this.pick(section.at(0.5, 0.5)),
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in acts)) return;
    event.preventDefault();
    acts[event.key]();
    requestAnimationFrame(() => { // after the drawing that was asked for before
      const box = canvas.getBoundingClientRect();
      section.point(section.at(0.5, 0.5), box.left + box.width / 2, box.top + box.height / 2, this);
    });
  }
}

async function open(script) {
  const data = JSON.parse(script.textContent);
  const columns = await columnsOf(data);
  const names = data.names === null ? null : new TextDecoder().decode(await unpacked(data.names)).split("\n");
  opened.push(new Section(data, columns, names, script.previousElementSibling));
}

if (!("DecompressionStream" in window && "ResizeObserver" in window && Array.prototype.findLastIndex)) return;
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") for (const section of opened) { section.light(null); section.point(-1); }
});
// a page of many sections opens each when it is about to be seen
const watcher = new IntersectionObserver((entries) => {
  for (const {isIntersecting, target} of entries) {
    if (!isIntersecting) continue;
    watcher.unobserve(target);
    open(target.nextElementSibling);
  }
}, {rootMargin: "800px"});
for (const script of document.querySelectorAll("script.map-data")) watcher.observe(script.previousElementSibling);
})();
