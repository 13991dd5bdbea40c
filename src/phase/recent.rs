use std::collections::VecDeque;

/// Steps that may be open at once and are still told from new ones.
const REMEMBERED: usize = 8;

/// Tells a new step from one that is still going on, by its number. Numbers may begin again in every
/// epoch, and several steps may be open at once.
#[derive(Debug)]
pub(crate) struct RecentSteps<T = ()>(VecDeque<(u64, T)>);

impl<T> Default for RecentSteps<T> {
    fn default() -> Self {
        Self(VecDeque::with_capacity(REMEMBERED))
    }
}

impl<T: Copy> RecentSteps<T> {
    /// What was remembered of a step; `None` for a new one.
    pub(crate) fn get(&self, step: u64) -> Option<T> {
        self.0.iter().find(|(known, _)| *known == step).map(|(_, value)| *value)
    }

    /// Remembers a step, and forgets the oldest.
    pub(crate) fn push(&mut self, step: u64, value: T) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((step, value));
    }
}
