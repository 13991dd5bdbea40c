//! Reads spans of the contract back, whatever carries them: a file of OTLP/JSON or a request.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use super::{self as contract, DeviceKeys, MAX_DEVICES};
use crate::counters::{Counters, DeviceName};
use crate::diagnosis::RunFacts;
use crate::phase::{MAX_BYTES, OutOfMemory, Outcome, Phase, PhaseRecord};

/// The name of a device whose spans do not tell it.
const UNNAMED: &str = "unnamed";

/// The value of an attribute, borrowed from what carries it. Lists and maps are not of the contract.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar<'a> {
    /// Text; a number may stand in it, as tracing-opentelemetry writes unsigned ones.
    Text(&'a str),
    /// An integer.
    Integer(i64),
    /// A number with a fraction.
    Double(f64),
    /// True or false.
    Flag(bool),
}

impl<'a> Scalar<'a> {
    fn text(self) -> Option<&'a str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    fn signed(self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(number),
            Self::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    fn number(self) -> Option<u64> {
        self.signed().and_then(|number| number.try_into().ok())
    }

    fn double(self) -> Option<f64> {
        match self {
            Self::Double(number) => Some(number),
            _ => None,
        }
    }

    fn flag(self) -> Option<bool> {
        match self {
            Self::Flag(flag) => Some(flag),
            _ => None,
        }
    }
}

/// Who sends: what a resource says, and a span where it says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Origin<'a> {
    /// The run.
    pub run_id: Option<&'a str>,
    /// The process's rank.
    pub rank: Option<u32>,
    /// How many ranks there are.
    pub world_size: Option<u32>,
    /// `service.instance.id`: one a process.
    pub instance: Option<&'a str>,
    /// `service.name`.
    pub service: Option<&'a str>,
}

impl<'a> Origin<'a> {
    /// What the attributes of a resource say. Of a key that stands there twice the first value counts.
    pub fn of_resource(attributes: impl IntoIterator<Item = (&'a str, Scalar<'a>)>) -> Self {
        let mut origin = Self::default();
        for (key, value) in attributes {
            match key {
                contract::RUN_ID => set(&mut origin.run_id, value.text()),
                contract::RANK => set(&mut origin.rank, small(value)),
                contract::WORLD_SIZE => set(&mut origin.world_size, small(value)),
                contract::SERVICE_INSTANCE_ID => set(&mut origin.instance, value.text()),
                contract::SERVICE_NAME => set(&mut origin.service, value.text()),
                _ => {}
            }
        }
        origin
    }
}

/// What a span is besides its attributes.
#[derive(Clone, Copy, Debug)]
pub struct SpanHead<'a> {
    /// Its name.
    pub name: &'a str,
    /// When it ended, in nanoseconds since 1970.
    pub end_unix_nano: u64,
    /// The message of its status; empty where it has none.
    pub status_message: &'a str,
}

/// A span that is a phase.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PhaseSpan<'a> {
    /// Who sent it.
    pub origin: Origin<'a>,
    /// Its place among the phases of its process: they are judged in this order.
    pub order: u64,
    /// What was known of the run when it ended.
    pub facts: RunFacts,
    /// Its counters, one record a device; one at least.
    pub records: Vec<(DeviceName, PhaseRecord)>,
}

/// A span that is a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepSpan<'a> {
    /// Who sent it.
    pub origin: Origin<'a>,
    /// The step.
    pub step: u64,
    /// Its process has judged it itself.
    pub has_verdict: bool,
}

/// What a span is in the contract.
#[derive(Clone, Debug, PartialEq)]
pub enum SpanRead<'a> {
    /// A phase with its counters.
    Phase(PhaseSpan<'a>),
    /// A step around phases.
    Step(StepSpan<'a>),
    /// A span that the contract says nothing of, or a run.
    Other,
}

/// A number of a span that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {found}")]
pub struct AbsurdNumber {
    /// What was expected.
    pub expected: String,
    /// What was found.
    pub found: String,
}

/// The meaning of an attribute. The numbers are the places of the device and the counter.
#[derive(Clone, Copy, Debug)]
enum Slot {
    Phase,
    Step,
    RunId,
    Rank,
    WorldSize,
    InputElements,
    OptimizerStepped,
    Sequence,
    Depth,
    HostDuration,
    ParameterBytes,
    DeviceBytes,
    BatchSize,
    OomRequested,
    ErrorType,
    Verdict,
    DeviceName(usize),
    Peak(usize),
    PeakDisturbed(usize),
    OutsideDelta(usize),
    Start(usize, usize),
    End(usize, usize),
}

/// Knows the names of the contract. Made once, it reads a span in about a microsecond: every
/// attribute is looked up once, and what the contract does not name is passed over.
///
/// # Examples
///
/// ```
/// use phasescope::contract::{Origin, Scalar, SpanHead, SpanRead, SpanReader};
///
/// let origin = Origin::of_resource([("phasescope.run_id", Scalar::Text("r1"))]);
/// let head = SpanHead { name: "forward", end_unix_nano: 5, status_message: "" };
/// let attributes = [
///     ("phasescope.phase", Scalar::Text("forward")),
///     ("phasescope.step", Scalar::Integer(3)),
///     ("phasescope.allocated.end", Scalar::Integer(1 << 20)),
/// ];
/// let SpanRead::Phase(phase) = SpanReader::new().read(origin, head, attributes)? else {
///     panic!("a phase")
/// };
/// assert_eq!(phase.origin.run_id, Some("r1"));
/// assert_eq!(phase.records[0].1.end.allocated, Some(1 << 20));
/// assert_eq!(phase.records[0].1.start.allocated, None, "absent is never zero");
/// # Ok::<(), phasescope::contract::AbsurdNumber>(())
/// ```
#[derive(Debug)]
pub struct SpanReader {
    slots: HashMap<String, Slot, FxBuildHasher>,
}

impl Default for SpanReader {
    fn default() -> Self {
        Self::new()
    }
}

/// What the attributes of one span say, before it is known whether it is a phase.
#[derive(Default)]
struct Found<'a> {
    origin: Origin<'a>,
    phase: Option<&'a str>,
    step: Option<u64>,
    sequence: Option<u64>,
    depth: Option<u32>,
    facts: RunFacts,
    input_elements: Option<u64>,
    optimizer_stepped: Option<bool>,
    host_seconds: Option<f64>,
    oom_requested: Option<u64>,
    error_type: Option<&'a str>,
    verdict: bool,
    devices: [Device<'a>; MAX_DEVICES],
}

#[derive(Default)]
struct Device<'a> {
    name: Option<&'a str>,
    start: [Option<u64>; 11],
    end: [Option<u64>; 11],
    peak: Option<u64>,
    peak_disturbed: Option<bool>,
    outside_change: Option<i64>,
}

impl SpanReader {
    /// Learns the names.
    #[must_use]
    pub fn new() -> Self {
        let named = [
            (contract::PHASE, Slot::Phase),
            (contract::STEP, Slot::Step),
            (contract::RUN_ID, Slot::RunId),
            (contract::RANK, Slot::Rank),
            (contract::WORLD_SIZE, Slot::WorldSize),
            (contract::INPUT_ELEMENTS, Slot::InputElements),
            (contract::OPTIMIZER_STEPPED, Slot::OptimizerStepped),
            (contract::SEQUENCE, Slot::Sequence),
            (contract::DEPTH, Slot::Depth),
            (contract::HOST_DURATION, Slot::HostDuration),
            (contract::PARAMETER_BYTES, Slot::ParameterBytes),
            (contract::DEVICE_BYTES, Slot::DeviceBytes),
            (contract::BATCH_SIZE, Slot::BatchSize),
            (contract::OOM_REQUESTED, Slot::OomRequested),
            (contract::ERROR_TYPE, Slot::ErrorType),
            (contract::VERDICT_CODE, Slot::Verdict),
        ];
        let named = named.map(|(name, slot)| (name.to_owned(), slot));
        let mut slots: HashMap<_, _, FxBuildHasher> = named.into_iter().collect();
        for (device, keys) in DeviceKeys::all().iter().enumerate() {
            let mut add = |key: &opentelemetry::Key, slot| {
                slots.insert(key.as_str().to_owned(), slot);
            };
            add(&keys.name, Slot::DeviceName(device));
            add(&keys.peak, Slot::Peak(device));
            add(&keys.peak_disturbed, Slot::PeakDisturbed(device));
            add(&keys.outside_delta, Slot::OutsideDelta(device));
            for (counter, edge) in keys.edges.iter().enumerate() {
                add(&edge.start, Slot::Start(device, counter));
                add(&edge.end, Slot::End(device, counter));
            }
        }
        Self { slots }
    }

    /// Reads one span. Of a key that stands there twice the first value counts.
    ///
    /// # Errors
    ///
    /// When a phase has a number that cannot be: a negative counter, or more than any machine has.
    pub fn read<'a>(
        &self,
        resource: Origin<'a>,
        head: SpanHead<'a>,
        attributes: impl IntoIterator<Item = (&'a str, Scalar<'a>)>,
    ) -> Result<SpanRead<'a>, AbsurdNumber> {
        let mut found = Found::default();
        let mut absurd = None;
        for (key, value) in attributes {
            if let Some(slot) = self.slots.get(key)
                && let Err(number) = found.take(*slot, key, value)
            {
                absurd.get_or_insert(number);
            }
        }
        let origin = Origin {
            run_id: found.origin.run_id.or(resource.run_id),
            rank: found.origin.rank.or(resource.rank),
            world_size: found.origin.world_size.or(resource.world_size),
            ..resource
        };
        match (found.phase, found.step) {
            (Some(phase), _) => match absurd {
                Some(number) => Err(number),
                // An unknown name is a phase all the same, as in the layer.
                None => found.phase(origin, head, phase.parse().unwrap_or(Phase::Other)),
            },
            (None, Some(step)) => {
                Ok(SpanRead::Step(StepSpan { origin, step, has_verdict: found.verdict }))
            }
            (None, None) => Ok(SpanRead::Other),
        }
    }
}

impl<'a> Found<'a> {
    fn take(&mut self, slot: Slot, key: &str, value: Scalar<'a>) -> Result<(), AbsurdNumber> {
        let size = || value.number().filter(|bytes| *bytes <= MAX_BYTES);
        match slot {
            // `?phase` arrives in quotation marks.
            Slot::Phase => {
                set(&mut self.phase, value.text().map(|name| name.trim_matches('"')));
            }
            Slot::Step => set(&mut self.step, value.number()),
            Slot::RunId => set(&mut self.origin.run_id, value.text()),
            Slot::Rank => set(&mut self.origin.rank, small(value)),
            Slot::WorldSize => set(&mut self.origin.world_size, small(value)),
            Slot::InputElements => set(&mut self.input_elements, value.number()),
            Slot::OptimizerStepped => set(&mut self.optimizer_stepped, value.flag()),
            Slot::Sequence => set(&mut self.sequence, value.number()),
            Slot::Depth => set(&mut self.depth, small(value)),
            Slot::HostDuration => set(&mut self.host_seconds, value.double()),
            Slot::ParameterBytes => set(&mut self.facts.parameter_bytes, size()),
            Slot::DeviceBytes => set(&mut self.facts.device_total, size()),
            Slot::BatchSize => set(&mut self.facts.local_batch_size, value.number()),
            Slot::OomRequested => set(&mut self.oom_requested, value.number()),
            Slot::ErrorType => set(&mut self.error_type, value.text()),
            Slot::Verdict => self.verdict = true,
            Slot::DeviceName(device) => set(&mut self.devices[device].name, value.text()),
            Slot::Peak(device) => set(&mut self.devices[device].peak, counter(key, value)?),
            Slot::PeakDisturbed(device) => {
                set(&mut self.devices[device].peak_disturbed, value.flag());
            }
            Slot::OutsideDelta(device) => {
                set(&mut self.devices[device].outside_change, value.signed());
            }
            Slot::Start(device, place) => {
                set(&mut self.devices[device].start[place], counter(key, value)?);
            }
            Slot::End(device, place) => {
                set(&mut self.devices[device].end[place], counter(key, value)?);
            }
        }
        Ok(())
    }

    fn phase(
        self,
        origin: Origin<'a>,
        head: SpanHead<'a>,
        phase: Phase,
    ) -> Result<SpanRead<'a>, AbsurdNumber> {
        let mut records = Vec::with_capacity(1);
        for (place, device) in self.devices.iter().enumerate() {
            if device.name.is_none() && place > 0 {
                continue;
            }
            let record = self.record(device, head, phase);
            if let Some((name, found)) = record.absurd() {
                let expected = format!("at most {MAX_BYTES} in {name} of {phase}");
                return Err(AbsurdNumber { expected, found });
            }
            records.push((DeviceName::new(device.name.unwrap_or(UNNAMED)), record));
        }
        let order = self.sequence.unwrap_or(head.end_unix_nano);
        Ok(SpanRead::Phase(PhaseSpan { origin, order, facts: self.facts, records }))
    }

    fn record(&self, device: &Device<'_>, head: SpanHead<'_>, phase: Phase) -> PhaseRecord {
        let mut record = PhaseRecord::new(self.step, phase);
        record.name = (head.name != phase.name()).then(|| head.name.into());
        record.depth = self.depth.unwrap_or(0);
        record.start = Counters::from_edge_values(device.start);
        record.end = Counters::from_edge_values(device.end);
        record.peak_allocated = device.peak;
        record.peak_disturbed = device.peak_disturbed.unwrap_or(false);
        record.outside_change = device.outside_change;
        record.host_seconds = self.host_seconds;
        record.input_elements = self.input_elements;
        record.optimizer_stepped = self.optimizer_stepped;
        record.outcome = self.outcome(head.status_message);
        record
    }

    fn outcome(&self, message: &str) -> Outcome {
        match self.error_type {
            Some(contract::OUT_OF_MEMORY) => {
                Outcome::OutOfMemory(OutOfMemory { requested: self.oom_requested })
            }
            Some(contract::PANIC) => {
                Outcome::Panicked((!message.is_empty()).then(|| message.to_owned()))
            }
            Some(contract::ERROR) => Outcome::Failed(message.to_owned()),
            _ => Outcome::Completed,
        }
    }
}

/// The first value of a key counts.
fn set<T>(place: &mut Option<T>, value: Option<T>) {
    if place.is_none() {
        *place = value;
    }
}

fn small(value: Scalar<'_>) -> Option<u32> {
    value.number().and_then(|number| number.try_into().ok())
}

/// A number from 0 on; a negative one is no measurement that is absent, but an error.
fn counter(key: &str, value: Scalar<'_>) -> Result<Option<u64>, AbsurdNumber> {
    let wrong = |number: i64| AbsurdNumber {
        expected: format!("{key} from 0 on"),
        found: number.to_string(),
    };
    let number = value.signed();
    number.map(|number| u64::try_from(number).map_err(|_| wrong(number))).transpose()
}
