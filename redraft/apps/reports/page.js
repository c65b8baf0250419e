// Plays back how a text was written. Each column holds [first step, state, text] for every change of one position;
// a text of "" is a masked token, drawn as a bar as wide as the word to come.
for (const figure of document.querySelectorAll(".writing")) {
  const { columns } = JSON.parse(figure.querySelector("script").textContent);
  const words = [...figure.querySelectorAll(".canvas span")];
  const finished = words.map((word) => word.textContent);
  const [strip, slider, button, output] = ["svg", "input", "button", "output"].map((name) => figure.querySelector(name));
  const last = Number(slider.max);
  const head = strip.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "rect"));
  head.setAttribute("class", "head");
  head.setAttribute("width", columns.length);
  head.setAttribute("height", 1);
  let timer = null;

  function show(step) {
    columns.forEach((changes, i) => {
      const [, state, text] = changes.findLast(([from]) => from <= step);
      words[i].className = state === "noise" && text ? "noise word" : state;
      words[i].textContent = text || finished[i];
    });
    slider.value = step;
    output.textContent = `step ${step}`;
    head.setAttribute("y", step);
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    button.textContent = "▶ Play";
  }

  function play() {
    let step = Number(slider.value) < last ? Number(slider.value) : 0;
    show(step);
    button.textContent = "❚❚ Pause";
    timer = setInterval(() => (step < last ? show(++step) : stop()), Math.max(30, 6000 / (last + 1)));
  }

  button.addEventListener("click", () => (timer === null ? play() : stop()));
  slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });
  strip.addEventListener("click", (event) => { stop(); show(place(event, "y", "height", last + 1)); });
  strip.addEventListener("pointermove", (event) => point(place(event, "x", "width", columns.length)));
  strip.addEventListener("pointerleave", () => point(-1));

  function place(event, axis, size, count) {
    const box = strip.getBoundingClientRect();
    return Math.min(count - 1, Math.max(0, Math.floor(((event[`client${axis.toUpperCase()}`] - box[axis]) / box[size]) * count)));
  }

  function point(position) {
    words.forEach((word, i) => word.classList.toggle("here", i === position));
  }

  figure.querySelector(".controls").hidden = false;
  show(last);
}
