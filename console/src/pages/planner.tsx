// The capacity planner: what a message costs, how much more fits, and what another load would take.

import { useState } from "react";
import { pathOf, withQuery } from "../api";
import { count, rate } from "../format";
import { usePoll, useSettled } from "../live";
import { Badge, Empty, Failure, Loading } from "../ui/state";

interface Loaded {
  received: number;
  delivered: number;
  written_bytes: number;
  syncs: number;
  busy: number;
  busy_error: number | null;
  fits: boolean | null;
}

interface Checked {
  forecasts: number;
  error: number;
  bias: number;
}

interface Capacity {
  observations: number;
  processors: number;
  load_max: number;
  now: Loaded;
  costs: { term: string; micros: number; error: number; is_known: boolean }[];
  headroom: { least: number; likely: number; most: number } | null;
  forecast: Loaded | null;
  error_next: Checked;
  error_later: Checked;
}

const TERMS: { [term: string]: string } = {
  base: "The broker itself, each second",
  receive: "Each message received",
  filter: "Each installed selector, for each message",
  transmit: "Each message sent to a consumer",
  byte: "Each byte written to the journal",
  sync: "Each sync of the journal",
};

const percent = (share: number) => `${(share * 100).toFixed(1)} %`;

function micros(value: number) {
  return value >= 100 ? `${count(value)} µs` : value >= 1 ? `${value.toFixed(2)} µs` : `${(value * 1000).toFixed(2)} ns`;
}

const CHANGES: { name: "subscribers" | "size" | "rate"; label: string; first: string; step: string }[] = [
  { name: "subscribers", label: "More subscribers for each message", first: "40", step: "1" },
  { name: "size", label: "Times as large", first: "1", step: "0.1" },
  { name: "rate", label: "Times as many messages", first: "1", step: "0.1" },
];

export function PlannerPage() {
  const [change, setChange] = useState<{ [name: string]: string }>(Object.fromEntries(CHANGES.map(({ name, first }) => [name, first])));
  const settled = useSettled(JSON.stringify(change));
  const { data: plan, error } = usePoll<Capacity>(withQuery(pathOf("planner"), JSON.parse(settled)), 2_000);
  if (plan === undefined) return error === undefined ? <Loading /> : <Failure error={error} />;
  const { now, headroom, forecast } = plan;
  return (
    <>
      <header className="page-head">
        <h1>Capacity</h1>
        <p className="page-note">Costs are fitted to the broker's own counters, all the time. Errors are two standard errors.</p>
      </header>
      {error !== undefined && <Failure error={error} />}
      <div className="tiles">
        <section className="card tile" aria-label="Now">
          <h2 className="tile-title">Now</h2>
          <p className="tile-value">{percent(now.busy)}</p>
          <p className="tile-note">
            of {plan.processors} processors; {rate(now.received)} in, {rate(now.delivered)} out, {rate(now.syncs)} syncs
          </p>
        </section>
        <section className="card tile" aria-label="Headroom">
          <h2 className="tile-title">Headroom</h2>
          <p className="tile-value">{headroom === null ? "–" : `${headroom.likely.toFixed(1)} ×`}</p>
          <p className="tile-note">
            {headroom === null ? "Known once there is a load" : `this load up to ${percent(plan.load_max)} of the processors; ${headroom.least.toFixed(1)} to ${headroom.most.toFixed(1)}`}
          </p>
        </section>
        <section className="card tile" aria-label="Forecast">
          <h2 className="tile-title">Forecast</h2>
          <p className="tile-value">{forecast === null ? "–" : `${percent(forecast.busy)}`}</p>
          <p className="tile-note">{forecast === null ? "Known after a few observations" : `± ${percent(forecast.busy_error ?? 0)}; ${rate(forecast.received)} in, ${rate(forecast.delivered)} out`}</p>
          {forecast !== null && (
            <div>
              <Badge tone={forecast.fits === true ? "good" : "warning"}>{forecast.fits === true ? "fits" : "does not fit for certain"}</Badge>
            </div>
          )}
        </section>
      </div>
      <section className="card panel" aria-label="What if">
        <header className="panel-head">
          <h2>What if</h2>
        </header>
        <div className="fields">
          {CHANGES.map(({ name, label, step }) => (
            <div className="field" key={name}>
              <label htmlFor={`change-${name}`}>{label}</label>
              <input id={`change-${name}`} type="number" min="0" step={step} value={change[name]} onChange={(event) => setChange({ ...change, [name]: event.target.value })} />
            </div>
          ))}
        </div>
      </section>
      <section className="card panel" aria-label="Costs">
        <header className="panel-head">
          <h2>Costs in processor time</h2>
          <span className="faint">{count(plan.observations)} observations</span>
        </header>
        {plan.costs.length === 0 ? (
          <Empty title="Known after a few observations" />
        ) : (
          <table className="pairs" aria-label="Costs">
            <tbody>
              {plan.costs.map(({ term, micros: cost, error: bar, is_known }) => (
                <tr key={term}>
                  <th scope="row">{TERMS[term] ?? term}</th>
                  <td className="mono">{is_known ? `${micros(cost)} ± ${micros(bar)}` : "this load does not show it"}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
        <p className="faint">
          {said("the next two seconds", plan.error_next)} {said("ten minutes later", plan.error_later)}
        </p>
      </section>
    </>
  );
}

function said(when: string, { forecasts, error, bias }: Checked) {
  if (forecasts === 0) return `No forecast for ${when} was checked yet.`;
  return `${count(forecasts)} forecasts for ${when} were off by ${percent(error)} on average (${bias < 0 ? "too low" : "too high"} by ${percent(Math.abs(bias))}).`;
}
