//! What is known of the runs: the engine's state of every rank, bounded in runs and ranks.

mod busy;
mod enrich;
mod judged;
mod rank;
mod table;

pub(crate) use enrich::Enricher;
pub(crate) use rank::PhaseLevels;
pub(crate) use table::{Runs, Unjudged};
