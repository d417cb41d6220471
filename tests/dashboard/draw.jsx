// The dashboard, drawn by Grafana's own components. esbuild bundles this; `SHOT` is what Prometheus answered.
import React, { useEffect } from "react";
import { createRoot } from "react-dom/client";
import "@fontsource/inter/latin-400.css";
import "@fontsource/inter/latin-500.css";
import "uplot/dist/uPlot.min.css";
import { GlobalStyles, ThemeContext, PanelChrome, TimeSeries } from "@grafana/ui";
import { FieldType, applyFieldOverrides, createTheme, dateTime, getValueFormats, toDataFrame } from "@grafana/data";

const { dashboard, answers, from, to } = window.SHOT;
const theme = createTheme({ colors: { mode: "light" } });
// Grafana's defaults, for what a panel leaves open.
const LINES = { drawStyle: "line", lineInterpolation: "linear", lineWidth: 1, fillOpacity: 0 };
const CUSTOM = { ...LINES, showPoints: "auto", pointSize: 5 };
const LEGEND = { showLegend: true, displayMode: "list", placement: "bottom", calcs: [] };
const WIDTH = document.body.clientWidth;
const GRID = { columns: 24, row: 30, gap: 8 };
const KINDS = { timeseries: TimeSeries };
const UNITS = getValueFormats().flatMap(({ submenu }) => submenu.map(({ value }) => value));
const range = { from: dateTime(from), to: dateTime(to), raw: { from: dateTime(from), to: dateTime(to) } };

function frames(panel) {
  const { custom, ...defaults } = panel.fieldConfig.defaults;
  if (!UNITS.includes(defaults.unit)) throw new Error(`panel '${panel.title}': Grafana has no unit '${defaults.unit}'`);
  if (panel.fieldConfig.overrides.length) throw new Error(`panel '${panel.title}': overrides cannot be drawn yet`);
  const config = { color: { mode: "palette-classic" }, ...defaults, custom: { ...CUSTOM, ...custom } };
  const data = answers[panel.id].map(({ name, values }) => {
    const time = { name: "Time", type: FieldType.time, values: values.map(([at]) => at * 1000) };
    const value = { name: "Value", type: FieldType.number, values: values.map(([, value]) => value) };
    return toDataFrame({ fields: [time, { ...value, config: { ...config, displayNameFromDS: name } }] });
  });
  const replaceVariables = (text) => text;
  return applyFieldOverrides({ data, fieldConfig: panel.fieldConfig, theme, timeZone: "utc", replaceVariables });
}

function Panel({ panel }) {
  const { x, y, w, h } = panel.gridPos;
  const column = (WIDTH - GRID.gap) / GRID.columns;
  const row = GRID.row + GRID.gap;
  const Kind = KINDS[panel.type];
  if (!Kind) throw new Error(`panel '${panel.title}': its kind '${panel.type}' cannot be drawn yet`);
  const legend = { ...LEGEND, ...panel.options?.legend };
  const place = { position: "absolute", left: GRID.gap + x * column, top: GRID.gap + y * row };
  return (
    <div style={place}>
      <PanelChrome title={panel.title} width={w * column - GRID.gap} height={h * row - GRID.gap}>
        {(width, height) => (
          <Kind {...{ width, height, legend }} frames={frames(panel)} timeRange={range} timeZone="utc" />
        )}
      </PanelChrome>
    </div>
  );
}

function Dashboard() {
  useEffect(() => console.log("drawn"));
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      {dashboard.panels.map((panel) => <Panel key={panel.id} panel={panel} />)}
    </ThemeContext.Provider>
  );
}

// uPlot writes its axes into a canvas, where a font that comes later changes nothing.
Promise.all([400, 500].map((weight) => document.fonts.load(`${weight} 12px Inter`))).then(() =>
  createRoot(document.getElementById("root")).render(<Dashboard />),
);
