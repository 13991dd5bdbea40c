use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::busy::Activity;
use super::rank::Rank;

/// A run that has sent nothing for so long makes room for a new one, however busy it was.
const IDLE: Duration = Duration::from_secs(60);

/// Why spans are passed on without being judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Unjudged {
    /// Its run is not among the busiest.
    RunLimit,
    /// Its rank does not fit.
    RankLimit,
    /// A name is too long.
    LongName,
    /// A number cannot be.
    AbsurdNumber,
}

impl Unjudged {
    pub(crate) const ALL: [Self; 4] =
        [Self::RunLimit, Self::RankLimit, Self::LongName, Self::AbsurdNumber];

    /// The label of the metric.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::RunLimit => "run_limit",
            Self::RankLimit => "rank_limit",
            Self::LongName => "long_name",
            Self::AbsurdNumber => "absurd_number",
        }
    }
}

/// One run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) id: String,
    ranks: Mutex<BTreeMap<u32, Rank>>,
}

impl Run {
    /// Its ranks. Held for one request's spans of the run at the most.
    pub(crate) fn ranks(&self) -> MutexGuard<'_, BTreeMap<u32, Rank>> {
        self.ranks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All runs that are judged.
#[derive(Debug)]
pub(crate) struct Runs {
    table: Mutex<Table>,
    most_runs: usize,
    most_ranks: usize,
    evicted: AtomicU64,
    expired: AtomicU64,
}

#[derive(Debug, Default)]
struct Table {
    runs: HashMap<String, Entry>,
    ranks: usize,
    /// Runs that found no room, by hash: how busy they are.
    waiting: HashMap<u64, Activity>,
}

#[derive(Debug)]
struct Entry {
    run: Arc<Run>,
    activity: Activity,
    ranks: BTreeSet<u32>,
}

impl Runs {
    pub(crate) fn new(runs: usize, ranks: usize) -> Self {
        Self {
            table: Mutex::default(),
            most_runs: runs,
            most_ranks: ranks,
            evicted: AtomicU64::new(0),
            expired: AtomicU64::new(0),
        }
    }

    /// The run of so many spans that have come. One that is new takes the place of a run that is
    /// idle, or of the least busy one if it is busier than that.
    ///
    /// # Errors
    ///
    /// When there is no room for it.
    pub(crate) fn enter(&self, id: &str, spans: usize, now: Instant) -> Result<Arc<Run>, Unjudged> {
        self.table().enter(id, spans, now, self)
    }

    /// Makes room for a rank of a run that has been entered, in the same way.
    ///
    /// # Errors
    ///
    /// When there is no room for it, or the run has made room for another meanwhile.
    pub(crate) fn enter_rank(&self, id: &str, rank: u32, now: Instant) -> Result<(), Unjudged> {
        self.table().enter_rank(id, rank, now, self)
    }

    /// Forgets runs that have sent nothing for so long.
    pub(crate) fn expire(&self, after: Duration, now: Instant) {
        let mut table = self.table();
        let old: Vec<_> = table
            .runs
            .iter()
            .filter(|(_, entry)| entry.activity.idle(now) >= after)
            .map(|(id, _)| id.clone())
            .collect();
        old.iter().for_each(|id| table.remove(id));
        table.waiting.retain(|_, activity| activity.idle(now) < IDLE);
        self.expired.fetch_add(old.len() as u64, Ordering::Relaxed);
    }

    /// All runs, by id.
    pub(crate) fn all(&self) -> Vec<Arc<Run>> {
        let mut runs: Vec<_> = self.table().runs.values().map(|entry| entry.run.clone()).collect();
        runs.sort_by(|first, second| first.id.cmp(&second.id));
        runs
    }

    /// One run.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<Run>> {
        self.table().runs.get(id).map(|entry| entry.run.clone())
    }

    /// Runs and ranks now.
    pub(crate) fn len(&self) -> (usize, usize) {
        let table = self.table();
        (table.runs.len(), table.ranks)
    }

    /// Runs that made room for busier ones, and runs that were forgotten with time.
    pub(crate) fn removed(&self) -> (u64, u64) {
        (self.evicted.load(Ordering::Relaxed), self.expired.load(Ordering::Relaxed))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn enter(
        &mut self,
        id: &str,
        spans: usize,
        now: Instant,
        limits: &Runs,
    ) -> Result<Arc<Run>, Unjudged> {
        if let Some(entry) = self.runs.get_mut(id) {
            entry.activity.add(spans, now);
            return Ok(entry.run.clone());
        }
        let activity = self.wait(id, spans, now, limits.most_runs);
        if self.runs.len() >= limits.most_runs {
            let victim = self.victim(id, activity, now).ok_or(Unjudged::RunLimit)?;
            self.evict(&victim, limits);
        }
        self.waiting.remove(&hash(id));
        let run = Arc::new(Run { id: id.to_owned(), ranks: Mutex::default() });
        let entry = Entry { run: run.clone(), activity, ranks: BTreeSet::new() };
        self.runs.insert(id.to_owned(), entry);
        Ok(run)
    }

    fn enter_rank(
        &mut self,
        id: &str,
        rank: u32,
        now: Instant,
        limits: &Runs,
    ) -> Result<(), Unjudged> {
        let entry = self.runs.get(id).ok_or(Unjudged::RunLimit)?;
        if entry.ranks.contains(&rank) {
            return Ok(());
        }
        let activity = entry.activity;
        while self.ranks >= limits.most_ranks {
            let victim = self.victim(id, activity, now).ok_or(Unjudged::RankLimit)?;
            self.evict(&victim, limits);
        }
        let entry = self.runs.get_mut(id).ok_or(Unjudged::RunLimit)?;
        entry.ranks.insert(rank);
        self.ranks += 1;
        Ok(())
    }

    fn evict(&mut self, id: &str, limits: &Runs) {
        self.remove(id);
        limits.evicted.fetch_add(1, Ordering::Relaxed);
    }

    /// How busy a run is that is not in the table. Of those as many are remembered as of the others;
    /// then the less busy half is forgotten.
    fn wait(&mut self, id: &str, spans: usize, now: Instant, limit: usize) -> Activity {
        if self.waiting.len() >= limit {
            let mut scores: Vec<_> =
                self.waiting.values().map(|activity| activity.at(now)).collect();
            let middle = scores.len() / 2;
            let (_, median, _) = scores.select_nth_unstable_by(middle, f64::total_cmp);
            let median = *median;
            self.waiting.retain(|_, activity| activity.at(now) > median);
        }
        let activity = self.waiting.entry(hash(id)).or_insert_with(|| Activity::new(now));
        activity.add(spans, now);
        *activity
    }

    /// Whose place a run may take: one that is idle, the longest first, else the least busy one.
    fn victim(&self, id: &str, activity: Activity, now: Instant) -> Option<String> {
        let others = || self.runs.iter().filter(|(other, _)| *other != id);
        let idle = others()
            .map(|(other, entry)| (other, entry.activity.idle(now)))
            .filter(|(_, idle)| *idle >= IDLE)
            .max_by_key(|(_, idle)| *idle);
        if let Some((other, _)) = idle {
            return Some(other.clone());
        }
        let (other, score) = others()
            .map(|(other, entry)| (other, entry.activity.at(now)))
            .min_by(|(_, first), (_, second)| first.total_cmp(second))?;
        (score < activity.at(now)).then(|| other.clone())
    }

    fn remove(&mut self, id: &str) {
        if let Some(entry) = self.runs.remove(id) {
            self.ranks -= entry.ranks.len();
        }
    }
}

fn hash(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}
