use std::sync::{Arc, Mutex, PoisonError};

use super::peaks::{Peak, PeakMode, PeakTracker};
use crate::counters::{CounterSource, Counters, DeviceName, Scope};
use crate::phase::signed_difference;

/// The devices that are measured, each with its sources.
#[derive(Debug)]
pub(super) struct Devices {
    devices: Vec<Device>,
    process: Vec<Arc<dyn CounterSource>>,
}

#[derive(Debug)]
struct Device {
    name: DeviceName,
    sources: Vec<Arc<dyn CounterSource>>,
    state: Mutex<DeviceState>,
}

#[derive(Debug)]
struct DeviceState {
    peaks: PeakTracker,
    /// Allocated when the last phase of depth 0 ended.
    last_end: Option<u64>,
}

/// What one phase measured on one device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Edges {
    pub(super) start: Counters,
    pub(super) end: Counters,
    pub(super) peak: Peak,
    pub(super) outside_change: Option<i64>,
}

impl Devices {
    /// Groups the sources by what they measure, in the order in which devices first appear.
    /// Without a device's source there is one device, `host`, for what the process's sources tell.
    pub(super) fn new(sources: Vec<Arc<dyn CounterSource>>, mode: PeakMode) -> Self {
        let mut devices: Vec<Device> = Vec::new();
        let mut process = Vec::new();
        for source in sources {
            match source.scope() {
                Scope::Process => process.push(source),
                Scope::Device(name) => match devices.iter_mut().find(|known| known.name == name) {
                    Some(device) => device.sources.push(source),
                    None => devices.push(Device::new(name, vec![source], mode)),
                },
            }
        }
        if devices.is_empty() {
            devices.push(Device::new(DeviceName::new("host"), Vec::new(), mode));
        }
        Self { devices, process }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &DeviceName> {
        self.devices.iter().map(|device| &device.name)
    }

    /// Each device's counters that are too dear for an edge.
    #[cfg(feature = "otlp")]
    pub(super) fn sampled(&self) -> Vec<(DeviceName, Counters)> {
        let sampled = |device: &Device| {
            let sources = device.sources.iter();
            sources.fold(Counters::default(), |counters, source| counters.or(source.sample()))
        };
        self.devices.iter().map(|device| (device.name.clone(), sampled(device))).collect()
    }

    /// A phase opens (`first`) or is entered again: reads every device once.
    pub(super) fn open(&self, id: u64, first: bool, outer: bool, edges: &mut Vec<Edges>) {
        let process = merged(&self.process);
        edges.resize(self.devices.len(), Edges::default());
        for (device, edges) in self.devices.iter().zip(edges) {
            let mut state = device.state.lock().unwrap_or_else(PoisonError::into_inner);
            let (counters, reset) = match state.peaks.mode() {
                PeakMode::PerSpan => merged_and_reset(&device.sources),
                PeakMode::Observe => (merged(&device.sources), false),
            };
            let counters = counters.or(process);
            state.peaks.open(id, counters.peak_allocated, counters.allocated.filter(|_| reset));
            if first {
                edges.start = counters;
                edges.outside_change = match (outer, counters.allocated, state.last_end) {
                    (true, Some(now), Some(last)) => signed_difference(now, last),
                    _ => None,
                };
            }
        }
    }

    /// A phase is left: reads every device once.
    pub(super) fn close(&self, id: u64, outer: bool, edges: &mut [Edges]) {
        let process = merged(&self.process);
        for (device, edges) in self.devices.iter().zip(edges) {
            let mut state = device.state.lock().unwrap_or_else(PoisonError::into_inner);
            let counters = merged(&device.sources).or(process);
            let peak = state.peaks.close(id, counters.peak_allocated);
            edges.end = counters;
            edges.peak.bytes = edges.peak.bytes.max(peak.bytes);
            edges.peak.disturbed |= peak.disturbed;
            if outer {
                state.last_end = counters.allocated;
            }
        }
    }
}

impl Device {
    fn new(name: DeviceName, sources: Vec<Arc<dyn CounterSource>>, mode: PeakMode) -> Self {
        let state = DeviceState { peaks: PeakTracker::new(mode), last_end: None };
        Self { name, sources, state: Mutex::new(state) }
    }
}

/// What several sources of one device tell together; the first that knows a value wins.
fn merged(sources: &[Arc<dyn CounterSource>]) -> Counters {
    sources.iter().fold(Counters::default(), |counters, source| counters.or(source.read()))
}

/// The same, with the peaks reset; whether there was one.
fn merged_and_reset(sources: &[Arc<dyn CounterSource>]) -> (Counters, bool) {
    sources.iter().fold((Counters::default(), false), |(counters, reset), source| {
        let (read, one) = source.read_and_reset_peak();
        (counters.or(read), reset || one)
    })
}
