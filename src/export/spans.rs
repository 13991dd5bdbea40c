//! From spans back to the records that they were made of.

use std::collections::{BTreeMap, HashMap, HashSet};

use opentelemetry::Key;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::Span;

use super::ProcessSeries;
use crate::contract::{self, DeviceKeys, EdgeKeys, MAX_DEVICES};
use crate::counters::{Counters, DeviceName};
use crate::diagnosis::{Diagnoser, Policy, RunFacts};
use crate::phase::{MAX_BYTES, OutOfMemory, Outcome, Phase, PhaseRecord};
use crate::report::Series;

/// The name of a device whose spans do not tell it.
const UNNAMED: &str = "unnamed";

/// Sorts spans by the process that they come from.
#[derive(Debug)]
pub(super) struct Processes {
    keys: [DeviceKeys; MAX_DEVICES],
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

impl Default for Processes {
    fn default() -> Self {
        Self { keys: DeviceKeys::all(), found: BTreeMap::new(), spans: 0 }
    }
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
    /// When a phase has a number that cannot be: what was expected and what was found.
    pub(super) fn add(
        &mut self,
        request: &ExportTraceServiceRequest,
    ) -> Result<(), (String, String)> {
        for group in &request.resource_spans {
            let attributes = group.resource.as_ref().map(|resource| &resource.attributes[..]);
            let resource = Fields::of(attributes.unwrap_or_default());
            for span in group.scope_spans.iter().flat_map(|scope| &scope.spans) {
                self.spans += 1;
                self.add_span(&resource, span)?;
            }
        }
        Ok(())
    }

    fn add_span(&mut self, resource: &Fields<'_>, span: &Span) -> Result<(), (String, String)> {
        let fields = Fields::of(&span.attributes);
        // `?phase` arrives in quotation marks.
        let Some(name) = fields.text(contract::PHASE).map(|name| name.trim_matches('"')) else {
            return Ok(());
        };
        // An unknown name is a phase all the same, as in the layer.
        let phase = name.parse().unwrap_or(Phase::Other);
        let either = |key| fields.text(key).or_else(|| resource.text(key)).map(str::to_owned);
        let rank = fields.number(contract::RANK).or_else(|| resource.number(contract::RANK));
        let rank = rank.and_then(|rank| u32::try_from(rank).ok()).unwrap_or(0);
        let instance = resource.text(contract::SERVICE_INSTANCE_ID).map(str::to_owned);
        let process = self.found.entry((either(contract::RUN_ID), rank, instance)).or_default();
        if !process.seen.insert((span.trace_id.clone(), span.span_id.clone())) {
            return Ok(());
        }
        let order = fields.number(contract::SEQUENCE).unwrap_or(span.end_time_unix_nano);
        let facts = RunFacts {
            parameter_bytes: bytes(&fields, contract::PARAMETER_BYTES),
            device_total: bytes(&fields, contract::DEVICE_BYTES),
            local_batch_size: fields.number(contract::BATCH_SIZE),
        };
        if order >= process.facts.0 {
            process.facts = (order, facts);
        }
        for (place, keys) in self.keys.iter().enumerate() {
            let device = fields.text(keys.name.as_str());
            if device.is_none() && place > 0 {
                continue;
            }
            let device = DeviceName::new(device.unwrap_or(UNNAMED));
            let record = record(&fields, keys, span, phase)?;
            process.records.push((order, device, record));
        }
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
            let finish = |(mut series, mut diagnoser): (Series, Diagnoser)| {
                diagnoser.finish();
                series.diagnosis = diagnoser.diagnosis();
                series
            };
            let series = series.into_iter().map(finish).collect();
            ProcessSeries { run_id, rank, instance, facts, series }
        });
        judged.collect()
    }
}

/// A size that a program has told; one that cannot be is passed over.
fn bytes(fields: &Fields<'_>, key: &str) -> Option<u64> {
    fields.number(key).filter(|bytes| *bytes <= MAX_BYTES)
}

fn record(
    fields: &Fields<'_>,
    keys: &DeviceKeys,
    span: &Span,
    phase: Phase,
) -> Result<PhaseRecord, (String, String)> {
    let counters = |edge: fn(&EdgeKeys) -> &Key| -> Result<Counters, (String, String)> {
        let mut values = [None; 11];
        for (value, keys) in values.iter_mut().zip(&keys.edges) {
            *value = fields.counter(edge(keys))?;
        }
        Ok(Counters::from_edge_values(values))
    };
    let mut record = PhaseRecord::new(fields.number(contract::STEP), phase);
    record.name = (span.name != phase.name()).then(|| span.name.as_str().into());
    record.depth =
        fields.number(contract::DEPTH).and_then(|depth| depth.try_into().ok()).unwrap_or(0);
    record.start = counters(|keys| &keys.start)?;
    record.end = counters(|keys| &keys.end)?;
    record.peak_allocated = fields.counter(&keys.peak)?;
    record.peak_disturbed = fields.flag(keys.peak_disturbed.as_str()).unwrap_or(false);
    record.outside_change = fields.signed(keys.outside_delta.as_str());
    record.host_seconds = fields.double(contract::HOST_DURATION);
    record.input_elements = fields.number(contract::INPUT_ELEMENTS);
    record.optimizer_stepped = fields.flag(contract::OPTIMIZER_STEPPED);
    record.outcome = outcome(fields, span);
    match record.absurd() {
        Some((name, found)) => Err((format!("at most {MAX_BYTES} in {name} of {phase}"), found)),
        None => Ok(record),
    }
}

fn outcome(fields: &Fields<'_>, span: &Span) -> Outcome {
    let message = || span.status.as_ref().map(|status| status.message.clone());
    match fields.text(contract::ERROR_TYPE) {
        Some(contract::OUT_OF_MEMORY) => {
            Outcome::OutOfMemory(OutOfMemory { requested: fields.number(contract::OOM_REQUESTED) })
        }
        Some(contract::PANIC) => Outcome::Panicked(message()),
        Some(contract::ERROR) => Outcome::Failed(message().unwrap_or_default()),
        _ => Outcome::Completed,
    }
}

/// Attributes by name. A key that was set twice has its first value.
struct Fields<'a>(HashMap<&'a str, &'a Value>);

impl<'a> Fields<'a> {
    fn of(attributes: &'a [KeyValue]) -> Self {
        let mut fields = HashMap::with_capacity(attributes.len());
        for pair in attributes {
            if let Some(value) = pair.value.as_ref().and_then(|value| value.value.as_ref()) {
                fields.entry(pair.key.as_str()).or_insert(value);
            }
        }
        Self(fields)
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        match self.0.get(key)? {
            Value::StringValue(text) => Some(text),
            _ => None,
        }
    }

    fn signed(&self, key: &str) -> Option<i64> {
        match self.0.get(key)? {
            Value::IntValue(number) => Some(*number),
            // What tracing-opentelemetry makes of a program's unsigned field.
            Value::StringValue(text) => text.parse().ok(),
            _ => None,
        }
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.signed(key).and_then(|number| u64::try_from(number).ok())
    }

    /// A number from 0 on; a negative one is no measurement that is absent, but an error.
    fn counter(&self, key: &Key) -> Result<Option<u64>, (String, String)> {
        let wrong = |number: i64| (format!("{key} from 0 on"), number.to_string());
        let number = self.signed(key.as_str());
        number.map(|number| u64::try_from(number).map_err(|_| wrong(number))).transpose()
    }

    fn double(&self, key: &str) -> Option<f64> {
        match self.0.get(key)? {
            Value::DoubleValue(number) => Some(*number),
            _ => None,
        }
    }

    fn flag(&self, key: &str) -> Option<bool> {
        match self.0.get(key)? {
            Value::BoolValue(flag) => Some(*flag),
            _ => None,
        }
    }
}
