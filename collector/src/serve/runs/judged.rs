use std::sync::Arc;

use phasescope::diagnosis::{Severity, Verdict};
use serde::Serialize;

use super::rank::Rank;
use super::table::Run;
use crate::judge::Judged;

/// The source that the answers name.
const SOURCE: &str = "otlp";

/// The verdicts that a request tells. Unless it was delivered they are taken back, and told again by
/// the next one: the client will try again.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    told: Vec<Told>,
}

#[derive(Debug)]
struct Told {
    run: Arc<Run>,
    rank: u32,
    before: Option<Verdict>,
    after: Option<Verdict>,
}

impl Verdicts {
    pub(super) fn announced(
        &mut self,
        run: Arc<Run>,
        rank: u32,
        before: Option<Verdict>,
        after: Option<Verdict>,
    ) {
        if before != after {
            self.told.push(Told { run, rank, before, after });
        }
    }

    /// The next hop has the request.
    pub(crate) fn delivered(mut self) {
        self.told.clear();
    }
}

impl Drop for Verdicts {
    fn drop(&mut self) {
        for Told { run, rank, before, after } in self.told.drain(..) {
            if let Some(rank) = run.ranks().get_mut(&rank)
                && rank.announced == after
            {
                rank.announced = before;
            }
        }
    }
}

/// A run in the list of runs.
#[derive(Debug, Serialize)]
pub(crate) struct RunSummary {
    run_id: String,
    service: Option<String>,
    world_size: Option<u32>,
    /// Ranks that have sent something.
    ranks: usize,
    /// Of the rank that is furthest.
    steps: u64,
    /// The gravest of all ranks.
    verdict: Option<Dominant>,
}

#[derive(Debug, Serialize)]
struct Dominant {
    rank: u32,
    code: &'static str,
    severity: Severity,
    title: String,
}

impl Run {
    /// The run in short.
    pub(crate) fn summary(&self) -> RunSummary {
        let ranks = self.ranks();
        let dominant = ranks
            .iter()
            .filter_map(|(number, rank)| Some((*number, rank.judge.finding()?)))
            .reduce(|first, next| if next.1.severity > first.1.severity { next } else { first });
        RunSummary {
            run_id: self.id.clone(),
            service: ranks.values().find_map(|rank| rank.service.clone()),
            world_size: ranks.values().filter_map(|rank| rank.world_size).max(),
            ranks: ranks.len(),
            steps: ranks.values().map(|rank| rank.steps).max().unwrap_or(0),
            verdict: dominant.map(|(rank, finding)| Dominant {
                rank,
                code: finding.code.name(),
                severity: finding.severity,
                title: finding.title.clone(),
            }),
        }
    }

    /// What the engine says of every rank and device, as `phasescope diagnose --format json` has it.
    pub(crate) fn judged(&self) -> Vec<Judged> {
        let mut ranks = self.ranks();
        let judged = ranks.iter_mut().flat_map(|(number, rank)| self.judged_rank(*number, rank));
        judged.collect()
    }

    fn judged_rank(&self, number: u32, rank: &mut Rank) -> Vec<Judged> {
        rank.settle();
        let devices = rank.devices.iter().map(|device| Judged {
            run_id: Some(self.id.clone()),
            device: Some(device.name.to_string()),
            instance: rank.instance.clone(),
            ..Judged::new(SOURCE.to_owned(), number, device.now.finished())
        });
        devices.collect()
    }
}
