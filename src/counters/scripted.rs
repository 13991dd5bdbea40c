//! Counters that follow a script: for this project's tests and for yours. Needs no libtorch.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{CounterSource, Counters, DeviceName, Scope};

/// A pretended device whose counters a test drives: either call [`allocate`](Self::allocate) and
/// [`free`](Self::free) as the pretended work goes on, or let it [`play`](Self::playing) a recorded
/// series.
///
/// # Examples
///
/// ```
/// use phasescope::counters::{CounterSource, scripted::Scripted};
///
/// let device = Scripted::new("cuda:0");
/// device.allocate(100);
/// device.free(40);
/// assert_eq!(device.read().allocated, Some(60));
/// assert_eq!(device.read().peak_allocated, Some(100));
/// ```
#[derive(Debug)]
pub struct Scripted {
    device: DeviceName,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    counters: Counters,
    /// The series still to be played, in reverse; empty for a device driven by calls.
    series: Vec<Counters>,
}

impl State {
    fn next(&mut self) -> Counters {
        if let Some(next) = self.series.pop() {
            self.counters = next;
        }
        self.counters
    }
}

impl Scripted {
    /// A device on which nothing is allocated yet. Only `allocated` and `peak_allocated` are
    /// measured until [`set`](Self::set) brings others.
    #[must_use]
    pub fn new(device: &str) -> Self {
        let counters =
            Counters { allocated: Some(0), peak_allocated: Some(0), ..Counters::default() };
        Self::with_state(device, counters, Vec::new())
    }

    /// A device that answers its reads with `series`, one entry a read, then with the last entry
    /// again and again. An empty series measures nothing.
    #[must_use]
    pub fn playing(device: &str, mut series: Vec<Counters>) -> Self {
        series.reverse();
        Self::with_state(device, Counters::default(), series)
    }

    fn with_state(device: &str, counters: Counters, series: Vec<Counters>) -> Self {
        Self { device: DeviceName::new(device), state: Mutex::new(State { counters, series }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pretends that `bytes` more are allocated; the peak follows.
    pub fn allocate(&self, bytes: u64) {
        let counters = &mut self.state().counters;
        let allocated = counters.allocated.unwrap_or(0).saturating_add(bytes);
        counters.allocated = Some(allocated);
        counters.peak_allocated = counters.peak_allocated.max(Some(allocated));
    }

    /// Pretends that `bytes` are freed, as far as so many are allocated.
    pub fn free(&self, bytes: u64) {
        let counters = &mut self.state().counters;
        counters.allocated = Some(counters.allocated.unwrap_or(0).saturating_sub(bytes));
    }

    /// Sets all counters at once.
    pub fn set(&self, counters: Counters) {
        self.state().counters = counters;
    }
}

impl CounterSource for Scripted {
    fn scope(&self) -> Scope {
        Scope::Device(self.device.clone())
    }

    fn read(&self) -> Counters {
        self.state().next()
    }

    /// The present counters; a series is not played on.
    fn sample(&self) -> Counters {
        self.state().counters
    }

    fn read_and_reset_peak(&self) -> (Counters, bool) {
        let mut state = self.state();
        let read = state.next();
        state.counters.peak_allocated = read.allocated;
        (read, read.allocated.is_some())
    }
}
