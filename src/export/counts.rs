use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What became of the spans of a run, counted by phasescope itself: the SDK tells nobody, and
/// reports success when its last export failed.
///
/// Every span that was to be exported is in exactly one of `exported`, `failed`, `dropped` and
/// `pending`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpanCounts {
    /// Accepted by the endpoint, or written to the file.
    pub exported: u64,
    /// Given up after the exporter's retries, or rejected by the endpoint.
    pub failed: u64,
    /// Left out because the queue was full, or because time ran out at the shutdown.
    pub dropped: u64,
    /// Waiting, or on their way; zero after the shutdown.
    pub pending: u64,
    /// Of steps that the sampling leaves out. These were not to be exported.
    pub unsampled: u64,
}

/// The counters behind [`SpanCounts`].
#[derive(Debug, Default)]
pub(crate) struct Counts {
    ended: AtomicU64,
    exported: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
    unsampled: AtomicU64,
    closed: AtomicBool,
}

impl Counts {
    /// A span wants to go out: whether there is room for it among at most `queue` others.
    pub(crate) fn admit(&self, queue: u64) -> bool {
        self.ended.fetch_add(1, Ordering::Relaxed);
        // Two threads may both find the last place: one too many for an instant, and the SDK's own
        // queue has the room.
        if self.closed.load(Ordering::Acquire) || self.pending() > queue {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    pub(crate) fn unsampled(&self, spans: u64) {
        self.unsampled.fetch_add(spans, Ordering::Relaxed);
    }

    /// A batch has come to its end. After the shutdown it no longer matters which: the batch is
    /// counted as dropped already.
    pub(crate) fn done(&self, exported: u64, failed: u64) {
        if !self.closed.load(Ordering::Acquire) {
            self.exported.fetch_add(exported, Ordering::Relaxed);
            self.failed.fetch_add(failed, Ordering::Relaxed);
        }
    }

    /// No span goes out from now on: what is still on its way is lost.
    pub(crate) fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.dropped.fetch_add(self.pending(), Ordering::Relaxed);
        }
    }

    fn pending(&self) -> u64 {
        // Read in this order a span on its way is never counted as gone twice.
        let gone = self.exported.load(Ordering::Relaxed)
            + self.failed.load(Ordering::Relaxed)
            + self.dropped.load(Ordering::Relaxed);
        self.ended.load(Ordering::Relaxed).saturating_sub(gone)
    }

    pub(crate) fn snapshot(&self) -> SpanCounts {
        SpanCounts {
            exported: self.exported.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            pending: self.pending(),
            unsampled: self.unsampled.load(Ordering::Relaxed),
        }
    }
}
