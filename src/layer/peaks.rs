/// Whether the layer may reset the allocator's peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeakMode {
    /// Reset it at the start of every phase, so that every phase has a peak of its own. A program
    /// that reads the allocator's peak itself then sees the peak since the last phase began.
    #[default]
    PerSpan,
    /// Never reset it. A phase's peak is then known only if the phase set a new maximum.
    Observe,
}

/// The peaks of the phases that are open on one device.
///
/// There is one running peak in the allocator and any number of open phases, nested or on several
/// threads. When a phase opens, the running peak is folded into all that are open already, and
/// reset; when one closes, it is folded into all that are open. Nothing is lost in between, since
/// every phase that is open was open since before the last reset.
#[derive(Debug)]
pub(super) struct PeakTracker {
    mode: PeakMode,
    open: Vec<Open>,
    /// Allocated at the last reset: a running peak below it was reset by someone else.
    base: Option<u64>,
}

#[derive(Debug)]
struct Open {
    id: u64,
    peak: Option<u64>,
    /// The running peak when the phase opened, for [`PeakMode::Observe`].
    before: Option<u64>,
    disturbed: bool,
}

/// A closed phase's peak.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peak {
    pub(super) bytes: Option<u64>,
    pub(super) disturbed: bool,
}

impl PeakTracker {
    /// Phases that can be open at once; the peak of one beyond them is not known.
    const MAX_OPEN: usize = 64;

    pub(super) fn new(mode: PeakMode) -> Self {
        Self { mode, open: Vec::new(), base: None }
    }

    pub(super) fn mode(&self) -> PeakMode {
        self.mode
    }

    /// A phase opens. `running` is the allocator's peak before it was reset to `base`, if it was.
    pub(super) fn open(&mut self, id: u64, running: Option<u64>, base: Option<u64>) {
        self.fold(running);
        self.base = base.or(self.base);
        if self.open.len() < Self::MAX_OPEN {
            self.open.push(Open { id, peak: None, before: running, disturbed: false });
        }
    }

    /// A phase closes.
    pub(super) fn close(&mut self, id: u64, running: Option<u64>) -> Peak {
        self.fold(running);
        let Some(place) = self.open.iter().rposition(|open| open.id == id) else {
            return Peak::default();
        };
        let open = self.open.remove(place);
        Peak { bytes: open.peak, disturbed: open.disturbed }
    }

    fn fold(&mut self, running: Option<u64>) {
        let Some(running) = running else { return };
        let disturbed = self.base.is_some_and(|base| running < base);
        for open in &mut self.open {
            open.disturbed |= disturbed;
            let own = match self.mode {
                PeakMode::PerSpan => true,
                PeakMode::Observe => open.before.is_some_and(|before| running > before),
            };
            if own {
                open.peak = open.peak.max(Some(running));
            }
        }
    }
}
