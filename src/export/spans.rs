//! From spans back to the records that they were made of.

use std::collections::{BTreeMap, HashSet};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::Span;

use super::ProcessSeries;
use crate::contract::{AbsurdNumber, Origin, Scalar, SpanHead, SpanRead, SpanReader};
use crate::counters::DeviceName;
use crate::diagnosis::{Diagnoser, Policy, RunFacts};
use crate::phase::PhaseRecord;
use crate::report::Series;

/// Sorts spans by the process that they come from.
#[derive(Debug, Default)]
pub(super) struct Processes {
    reader: SpanReader,
    found: BTreeMap<(Option<String>, u32, Option<String>), Process>,
    spans: usize,
}

#[derive(Debug, Default)]
struct Process {
    seen: HashSet<(Vec<u8>, Vec<u8>)>,
    /// Place in the order of ends, device, record.
    records: Vec<(u64, DeviceName, PhaseRecord)>,
    facts: (u64, RunFacts),
}

impl Processes {
    /// All spans so far, phases or not.
    pub(super) fn spans(&self) -> usize {
        self.spans
    }

    /// Takes the phases of a request.
    ///
    /// # Errors
    ///
    /// When a phase has a number that cannot be.
    pub(super) fn add(&mut self, request: &ExportTraceServiceRequest) -> Result<(), AbsurdNumber> {
        for group in &request.resource_spans {
            let attributes = group.resource.as_ref().map(|resource| &resource.attributes[..]);
            let resource = Origin::of_resource(scalars(attributes.unwrap_or_default()));
            for span in group.scope_spans.iter().flat_map(|scope| &scope.spans) {
                self.spans += 1;
                self.add_span(resource, span)?;
            }
        }
        Ok(())
    }

    fn add_span(&mut self, resource: Origin<'_>, span: &Span) -> Result<(), AbsurdNumber> {
        let head = SpanHead {
            name: &span.name,
            end_unix_nano: span.end_time_unix_nano,
            status_message: span.status.as_ref().map_or("", |status| &status.message),
        };
        let read = self.reader.read(resource, head, scalars(&span.attributes))?;
        let SpanRead::Phase(phase) = read else { return Ok(()) };
        let origin = phase.origin;
        let key = (
            origin.run_id.map(str::to_owned),
            origin.rank.unwrap_or(0),
            origin.instance.map(str::to_owned),
        );
        let process = self.found.entry(key).or_default();
        if !process.seen.insert((span.trace_id.clone(), span.span_id.clone())) {
            return Ok(());
        }
        if phase.order >= process.facts.0 {
            process.facts = (phase.order, phase.facts);
        }
        let records = phase.records.into_iter();
        process.records.extend(records.map(|(device, record)| (phase.order, device, record)));
        Ok(())
    }

    /// Has the engine judge every process's phases.
    pub(super) fn judge(self) -> Vec<ProcessSeries> {
        let judged = self.found.into_iter().map(|((run_id, rank, instance), mut process)| {
            process.records.sort_by_key(|(order, ..)| *order);
            let facts = process.facts.1;
            let mut series: Vec<(Series, Diagnoser)> = Vec::new();
            for (_, device, record) in process.records {
                let place = series.iter().position(|(series, _)| series.device == device);
                let place = place.unwrap_or_else(|| {
                    let diagnoser = Diagnoser::new(Policy::default(), facts);
                    let diagnosis = diagnoser.diagnosis();
                    series.push((Series { device, records: Vec::new(), diagnosis }, diagnoser));
                    series.len() - 1
                });
                let (series, diagnoser) = &mut series[place];
                diagnoser.observe(&record);
                series.records.push(record);
            }
            let finish = |(mut series, diagnoser): (Series, Diagnoser)| {
                series.diagnosis = diagnoser.finished();
                series
            };
            let series = series.into_iter().map(finish).collect();
            ProcessSeries { run_id, rank, instance, facts, series }
        });
        judged.collect()
    }
}

fn scalars(attributes: &[KeyValue]) -> impl Iterator<Item = (&str, Scalar<'_>)> {
    attributes.iter().filter_map(|pair| {
        let value = match pair.value.as_ref()?.value.as_ref()? {
            Value::StringValue(text) => Scalar::Text(text),
            Value::IntValue(number) => Scalar::Integer(*number),
            Value::DoubleValue(number) => Scalar::Double(*number),
            Value::BoolValue(flag) => Scalar::Flag(*flag),
            _ => return None,
        };
        Some((pair.key.as_str(), value))
    })
}
