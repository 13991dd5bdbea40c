//! The engine's memory does not depend on the number of steps.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};

use phasescope::diagnosis::{Diagnoser, Policy, RunFacts};
use phasescope::{Counters, Phase, PhaseRecord};

/// Counts what this process has allocated. One test in this file, so nothing else allocates.
struct Counting;

static LIVE: AtomicI64 = AtomicI64::new(0);

// SAFETY: passes everything on to the system's allocator and only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's layout is passed on as it is.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_million_steps_take_no_more_memory_than_a_thousand() {
    let before = LIVE.load(Ordering::Relaxed);
    let mut diagnoser = Box::new(Diagnoser::new(Policy::default(), RunFacts::default()));
    let observe = |diagnoser: &mut Diagnoser, steps: std::ops::Range<u64>| {
        for step in steps {
            for (phase, start, end) in [
                (Phase::Forward, 100, 150),
                (Phase::Backward, 150, 130),
                (Phase::ClearGradients, 130, 100),
            ] {
                let mut record = PhaseRecord::new(Some(step), phase);
                record.start = Counters { allocated: Some(start), ..Counters::default() };
                record.end = Counters { allocated: Some(end), ..Counters::default() };
                diagnoser.observe(&record);
            }
        }
    };
    observe(&mut diagnoser, 0..1000);
    let after_a_thousand = LIVE.load(Ordering::Relaxed);
    observe(&mut diagnoser, 1000..1_000_000);
    let after_a_million = LIVE.load(Ordering::Relaxed);
    assert_eq!(after_a_million, after_a_thousand);
    let held = after_a_million - before;
    assert!((1..32 << 10).contains(&held), "{held} bytes");
    // And it still judges.
    diagnoser.finish();
    assert!(diagnoser.diagnosis().budget.is_some());
}
