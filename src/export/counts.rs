use std::sync::{Mutex, MutexGuard, PoisonError};

/// What became of the spans of a run, counted by phasescope itself: the SDK tells nobody, and
/// reports success when its last export failed.
///
/// Every span that ended before the shutdown and was to be exported is in exactly one of `exported`,
/// `failed`, `dropped` and `pending`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpanCounts {
    /// Accepted by the endpoint, or written to the file.
    pub exported: u64,
    /// Given up after the exporter's retries, or rejected by the endpoint. Of spans that an endpoint
    /// rejects in an answer of success the exporter tells in an event of level WARN only: they are
    /// seen where the phase layer is in the program's global subscriber and that level is on, and
    /// count as exported elsewhere.
    pub failed: u64,
    /// Left out because the queue was full, or because time ran out at the shutdown.
    pub dropped: u64,
    /// Waiting, or on their way; zero after the shutdown.
    pub pending: u64,
    /// Left out by the sampling. These were not to be exported.
    pub unsampled: u64,
}

/// The counters behind [`SpanCounts`], under one lock: what is gone from one is in another.
#[derive(Debug, Default)]
pub(crate) struct Counts(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    counts: SpanCounts,
    closed: bool,
}

impl Counts {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A span wants to go out: whether there is room for it among at most `queue`.
    pub(crate) fn admit(&self, queue: u64) -> bool {
        let mut state = self.state();
        let room = !state.closed && state.counts.pending < queue;
        if room {
            state.counts.pending += 1;
        } else {
            state.counts.dropped += 1;
        }
        room
    }

    pub(crate) fn unsampled(&self, spans: u64) {
        self.state().counts.unsampled += spans;
    }

    /// A batch has come to its end. After the shutdown it no longer matters which: the batch is
    /// counted as dropped already.
    pub(crate) fn done(&self, exported: u64, failed: u64) {
        let mut state = self.state();
        if !state.closed {
            let counts = &mut state.counts;
            counts.exported += exported;
            counts.failed += failed;
            counts.pending = counts.pending.saturating_sub(exported + failed);
        }
    }

    /// No span goes out from now on: what is still on its way is lost.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.counts.dropped += std::mem::take(&mut state.counts.pending);
    }

    pub(crate) fn snapshot(&self) -> SpanCounts {
        self.state().counts
    }
}
