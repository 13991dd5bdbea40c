use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Histogram, Meter};

use super::counts::Counts;
use crate::contract;
use crate::counters::{CounterSource, Counters, DeviceName, host::HostMemory};
use crate::diagnosis::Diagnosis;
use crate::phase::{Phase, PhaseRecord, RunIdentity};

/// Upper bounds of the buckets of a phase's duration, in seconds.
const SECONDS: [f64; 13] =
    [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 50.0, 100.0];

/// What a collection of metrics asks the layer. Called on the reader's thread.
pub(crate) trait Observed: Send + Sync {
    /// What the engine says of each device now.
    fn diagnoses(&self) -> Vec<(DeviceName, Diagnosis)>;
    /// Each device's counters that are too dear for a phase's edge.
    fn sampled(&self) -> Vec<(DeviceName, Counters)>;
}

/// The instruments of one process. The layer feeds them at the end of every phase, whatever the
/// sampling of spans.
pub(crate) struct Instruments {
    board: Arc<Board>,
    duration: Histogram<f64>,
    phases: [Vec<KeyValue>; Phase::ALL.len()],
}

/// The last numbers of every phase.
#[derive(Debug)]
struct Board {
    run: Vec<KeyValue>,
    devices: Vec<DeviceName>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// A device's phases, in the order of [`Phase::ALL`].
    levels: Vec<[Levels; Phase::ALL.len()]>,
    steps: u64,
}

/// What one phase left behind when it ended last, and its highest peak since the last collection.
#[derive(Clone, Copy, Debug, Default)]
struct Levels {
    end: Counters,
    peak: Option<u64>,
}

impl Board {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attributes(&self, own: impl IntoIterator<Item = KeyValue>) -> Vec<KeyValue> {
        self.run.iter().cloned().chain(own).collect()
    }

    /// Hands every phase that has the value to `observe`.
    fn each(&self, value: impl Fn(&mut Levels) -> Option<u64>, observe: impl Fn(u64, &[KeyValue])) {
        let mut state = self.state();
        for (device, levels) in self.devices.iter().zip(&mut state.levels) {
            for (phase, levels) in Phase::ALL.into_iter().zip(levels) {
                if let Some(value) = value(levels) {
                    let own = [device_name(device), KeyValue::new(contract::PHASE, phase.name())];
                    observe(value, &self.attributes(own));
                }
            }
        }
    }
}

impl Instruments {
    /// `counts` are those of our own export of spans, where there is one.
    pub(crate) fn new(
        meter: &Meter,
        identity: &RunIdentity,
        devices: Vec<DeviceName>,
        observed: Arc<dyn Observed>,
        counts: Option<Arc<Counts>>,
    ) -> Self {
        let run = vec![
            KeyValue::new(contract::RUN_ID, identity.run_id.clone()),
            KeyValue::new(contract::RANK, i64::from(identity.rank)),
        ];
        let levels = vec![[Levels::default(); Phase::ALL.len()]; devices.len()];
        let state = Mutex::new(State { levels, steps: 0 });
        let board = Arc::new(Board { run, devices, state });
        phase_gauges(meter, &board);
        run_metrics(meter, &board, counts);
        observed_metrics(meter, &board, observed);
        let duration = meter
            .f64_histogram(contract::PHASE_DURATION)
            .with_unit("s")
            .with_description("Time on the host between a phase's edges")
            .with_boundaries(SECONDS.to_vec())
            .build();
        let phases = Phase::ALL
            .map(|phase| board.attributes([KeyValue::new(contract::PHASE, phase.name())]));
        Self { board, duration, phases }
    }

    /// A step has ended, or begun where phases say their step themselves.
    pub(crate) fn step(&self) {
        self.board.state().steps += 1;
    }

    /// A phase has ended: its records, the first device first.
    pub(crate) fn phase<'a>(&self, records: impl Iterator<Item = &'a PhaseRecord>) {
        let mut first = None;
        let mut state = self.board.state();
        for (place, record) in records.enumerate() {
            first = first.or(Some(record));
            let Some(levels) = state.levels.get_mut(place) else { break };
            let levels = &mut levels[record.phase.index()];
            levels.end = record.end;
            levels.peak = levels.peak.max(record.peak_allocated);
        }
        drop(state);
        if let Some((record, seconds)) = first.and_then(|first| Some((first, first.host_seconds?)))
        {
            self.duration.record(seconds, &self.phases[record.phase.index()]);
        }
    }
}

impl fmt::Debug for Instruments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instruments").field("board", &self.board).finish_non_exhaustive()
    }
}

type Value = fn(&mut Levels) -> Option<u64>;
type Counter = fn(&Counters) -> Option<u64>;

/// One gauge a counter, by phase and device.
fn phase_gauges(meter: &Meter, board: &Arc<Board>) {
    let gauges: [(&'static str, &'static str, Value); 5] = [
        (contract::MEMORY_ALLOCATED, "Live tensor storage at the end of the phase", |levels| {
            levels.end.allocated
        }),
        (
            contract::MEMORY_RESERVED,
            "Held by the caching allocator at the end of the phase",
            |levels| levels.end.reserved,
        ),
        (
            contract::MEMORY_PEAK,
            "Highest allocated inside the phase since the last collection",
            |levels| levels.peak.take(),
        ),
        (
            contract::MEMORY_DEVICE_USED,
            "Used on the whole device at the end of the phase",
            |levels| levels.end.device_used,
        ),
        (
            contract::MEMORY_PROCESS_DEVICE_USED,
            "Used on the device by this process at the end of the phase",
            |levels| levels.end.process_device_used,
        ),
    ];
    for (name, description, value) in gauges {
        let board = board.clone();
        meter
            .u64_observable_gauge(name)
            .with_unit("By")
            .with_description(description)
            .with_callback(move |observer| {
                board.each(value, |value, attributes| observer.observe(value, attributes));
            })
            .build();
    }
}

/// What belongs to the run as a whole: its steps, its memory on the host, its spans.
fn run_metrics(meter: &Meter, board: &Arc<Board>, counts: Option<Arc<Counts>>) {
    let steps = board.clone();
    meter
        .u64_observable_counter(contract::STEPS)
        .with_unit("{step}")
        .with_description("Training steps so far")
        .with_callback(move |observer| observer.observe(steps.state().steps, &steps.run))
        .build();
    let process = board.clone();
    let host = HostMemory::new();
    meter
        .i64_observable_up_down_counter(contract::PROCESS_MEMORY)
        .with_unit("By")
        .with_description("Resident host memory of this process")
        .with_callback(move |observer| {
            if let Some(bytes) = number(host.read().host_rss) {
                observer.observe(bytes, &process.run);
            }
        })
        .build();
    let Some(counts) = counts else { return };
    let board = board.clone();
    meter
        .u64_observable_counter(contract::SPANS)
        .with_unit("{span}")
        .with_description("Spans by what became of them")
        .with_callback(move |observer| {
            let counts = counts.snapshot();
            for (outcome, spans) in [
                ("exported", counts.exported),
                ("failed", counts.failed),
                ("dropped", counts.dropped),
                ("unsampled", counts.unsampled),
            ] {
                let own = KeyValue::new(contract::OUTCOME, outcome);
                observer.observe(spans, &board.attributes([own]));
            }
        })
        .build();
}

/// What is asked for only when metrics are collected.
fn observed_metrics(meter: &Meter, board: &Arc<Board>, observed: Arc<dyn Observed>) {
    let (findings, diagnoses) = (board.clone(), observed.clone());
    meter
        .u64_observable_gauge(contract::FINDING_HELD_METRIC)
        .with_unit("By")
        .with_description("Bytes that a named cause holds")
        .with_callback(move |observer| {
            for (device, diagnosis) in diagnoses.diagnoses() {
                for finding in diagnosis.findings {
                    let attributes = findings.attributes([
                        device_name(&device),
                        KeyValue::new(contract::FINDING_CODE, finding.code.name()),
                        KeyValue::new(contract::FINDING_SEVERITY, finding.severity.to_string()),
                    ]);
                    observer.observe(finding.held_bytes, &attributes);
                }
            }
        })
        .build();
    let gpu: [(&'static str, &'static str, Counter); 2] = [
        (contract::GPU_USAGE, "Used on the GPU, by everyone", |counters| counters.device_used),
        (contract::GPU_LIMIT, "The GPU's size", |counters| counters.device_total),
    ];
    for (name, description, value) in gpu {
        let (board, observed) = (board.clone(), observed.clone());
        meter
            .i64_observable_up_down_counter(name)
            .with_unit("By")
            .with_description(description)
            .with_callback(move |observer| {
                for (device, counters) in observed.sampled() {
                    if let Some(bytes) = number(value(&counters)) {
                        let id = KeyValue::new(contract::HW_ID, device.as_str().to_owned());
                        observer.observe(bytes, &board.attributes([id]));
                    }
                }
            })
            .build();
    }
}

fn device_name(device: &DeviceName) -> KeyValue {
    KeyValue::new(contract::DEVICE_NAME, device.as_str().to_owned())
}

fn number(bytes: Option<u64>) -> Option<i64> {
    bytes.and_then(|bytes| i64::try_from(bytes).ok())
}
