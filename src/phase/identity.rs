use std::env;

/// Which run and which of its processes this is. Everything is keyed by run id and rank.
///
/// # Examples
///
/// ```
/// use phasescope::phase::RunIdentity;
///
/// let identity = RunIdentity::new("nightly-42").with_rank(3, 8);
/// assert_eq!((identity.rank, identity.world_size), (3, 8));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunIdentity {
    /// The run's id, the same in every process of the run.
    pub run_id: String,
    /// This process's rank, from 0.
    pub rank: u32,
    /// The rank on this host, from 0.
    pub local_rank: u32,
    /// How many processes train together.
    pub world_size: u32,
}

impl RunIdentity {
    /// Rank 0 of a run of one process.
    #[must_use]
    pub fn new(run_id: impl Into<String>) -> Self {
        Self { run_id: run_id.into(), rank: 0, local_rank: 0, world_size: 1 }
    }

    /// Sets rank and world size; the local rank follows the rank until it is set.
    #[must_use]
    pub fn with_rank(mut self, rank: u32, world_size: u32) -> Self {
        self.rank = rank;
        self.local_rank = rank;
        self.world_size = world_size;
        self
    }

    /// Reads what launchers set: `PHASESCOPE_RUN_ID`, else `TORCHELASTIC_RUN_ID`, else the process
    /// id; `RANK`, `LOCAL_RANK` and `WORLD_SIZE`. What is not a number is passed over as if it were
    /// not set: identity never stops a training run.
    #[must_use]
    pub fn from_env() -> Self {
        let text = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let number = |name| text(name).and_then(|value| value.parse::<u32>().ok());
        let run_id = text("PHASESCOPE_RUN_ID")
            .or_else(|| text("TORCHELASTIC_RUN_ID"))
            .unwrap_or_else(|| format!("pid-{}", std::process::id()));
        let rank = number("RANK").unwrap_or(0);
        Self {
            run_id,
            rank,
            local_rank: number("LOCAL_RANK").unwrap_or(rank),
            world_size: number("WORLD_SIZE").unwrap_or(1).max(rank.saturating_add(1)),
        }
    }
}
