"use strict";

// Line charts on a canvas: as many lines as there are runs, redrawn whole.

const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"];

function shortNumber(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return +(value / 1e9).toPrecision(3) + "G";
  if (size >= 1e6) return +(value / 1e6).toPrecision(3) + "M";
  if (size >= 1e3) return +(value / 1e3).toPrecision(3) + "k";
  return String(+value.toPrecision(3));
}

function ticks(low, high, count) {
  const raw = (high - low) / count;
  if (!(raw > 0) || !Number.isFinite(raw)) return [low];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw);
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}

function smoothed(values, weight) {
  if (!weight || !values.length) return values;
  let mean = values[0];
  return values.map((value) => (mean = weight * mean + (1 - weight) * value));
}

class Chart {
  constructor(title) {
    this.element = document.createElement("div");
    const heading = document.createElement("h3");
    heading.textContent = title;
    this.canvas = document.createElement("canvas");
    this.note = document.createElement("div");
    this.note.className = "muted";
    this.note.textContent = "\u00a0";
    this.element.append(heading, this.canvas, this.note);
    this.lines = [];
    this.pointer = null;
    this.canvas.addEventListener("mousemove", (e) => this.point(e));
    this.canvas.addEventListener("mouseleave", () => this.point(null));
    this.canvas.addEventListener("click", () => {
      if (this.nearest && this.nearest.line.open) this.nearest.line.open();
    });
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  // lines: [{name, x, y, colour, open}]
  show(lines) {
    this.lines = lines.filter((line) => line.x.length);
    this.draw();
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    this.pointer = event && { x: event.clientX - box.left, y: event.clientY - box.top };
    this.draw();
  }

  bounds() {
    let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const { x, y } of this.lines) {
      left = Math.min(left, x[0]);
      right = Math.max(right, x[x.length - 1]);
      for (const value of y) {
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
    if (right === left) [left, right] = [left - 1, right + 1];
    if (high === low) [low, high] = [low - 1, high + 1];
    return { left, right, low, high };
  }

  draw() {
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    if (!width || !height) return;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    const c = this.canvas.getContext("2d");
    c.scale(ratio, ratio);
    c.font = "11px system-ui, sans-serif";
    this.nearest = null;
    if (!this.lines.length) {
      c.fillStyle = "#6b6b6b";
      c.fillText("no value yet", 48, height / 2);
      return;
    }
    const b = this.bounds();
    const pad = { left: 48, right: 8, top: 6, bottom: 20 };
    const place = (x, y) => [
      pad.left + ((x - b.left) / (b.right - b.left)) * (width - pad.left - pad.right),
      height - pad.bottom - ((y - b.low) / (b.high - b.low)) * (height - pad.top - pad.bottom),
    ];
    this.grid(c, b, place, width, height);
    c.lineWidth = this.lines.length > 20 ? 0.8 : 1.5;
    c.lineJoin = "round";
    for (const line of this.lines) this.line(c, line, place);
    this.label(c, place);
  }

  grid(c, b, place, width, height) {
    c.strokeStyle = "#e6e6e6";
    c.fillStyle = "#6b6b6b";
    c.lineWidth = 1;
    c.textAlign = "right";
    for (const value of ticks(b.low, b.high, height / 50)) {
      const [, y] = place(b.left, value);
      c.beginPath();
      c.moveTo(48, y);
      c.lineTo(width - 8, y);
      c.stroke();
      c.fillText(shortNumber(value), 44, y + 4);
    }
    c.textAlign = "center";
    for (const value of ticks(b.left, b.right, width / 90)) {
      const [x] = place(value, b.low);
      c.fillText(shortNumber(value), x, height - 5);
    }
  }

  line(c, line, place) {
    c.strokeStyle = line.colour;
    c.beginPath();
    line.x.forEach((step, i) => {
      const [x, y] = place(step, line.y[i]);
      if (i) c.lineTo(x, y);
      else c.moveTo(x, y);
      if (!this.pointer) return;
      const far = Math.hypot(x - this.pointer.x, y - this.pointer.y);
      if (far < 40 && (!this.nearest || far < this.nearest.far)) {
        this.nearest = { far, line, x, y, step, value: line.y[i] };
      }
    });
    if (line.x.length === 1) {
      const [x, y] = place(line.x[0], line.y[0]);
      c.arc(x, y, 2, 0, 7);
    }
    c.stroke();
  }

  label(c, place) {
    const found = this.nearest;
    this.note.textContent = found
      ? `${found.line.name}: ${shortNumber(found.value)} at ${found.step.toLocaleString("en")}`
      : "\u00a0";
    if (!found) return;
    c.lineWidth = 3;
    this.pointer = null;
    this.line(c, found.line, place);
    c.fillStyle = found.line.colour;
    c.beginPath();
    c.arc(found.x, found.y, 4, 0, 7);
    c.fill();
    this.nearest = found;
  }
}
