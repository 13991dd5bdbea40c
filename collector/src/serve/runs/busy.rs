use std::time::{Duration, Instant};

/// After this time a span counts half.
const HALF_LIFE: Duration = Duration::from_secs(60);

/// How busy a run is: its spans, of which older ones count less and less.
#[derive(Clone, Copy, Debug)]
pub(super) struct Activity {
    score: f64,
    pub(super) last: Instant,
}

impl Activity {
    pub(super) fn new(now: Instant) -> Self {
        Self { score: 0.0, last: now }
    }

    pub(super) fn add(&mut self, spans: usize, now: Instant) {
        self.score = self.at(now) + spans as f64;
        self.last = now.max(self.last);
    }

    /// Spans of now that it is worth.
    pub(super) fn at(&self, now: Instant) -> f64 {
        self.score * (-(self.idle(now).div_duration_f64(HALF_LIFE))).exp2()
    }

    pub(super) fn idle(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.last)
    }
}
