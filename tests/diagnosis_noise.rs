//! Noise, plateaus and long runs: what must stay silent, and what must not grow.

use phasescope::diagnosis::{Code, Diagnoser, Policy, RunFacts};
use phasescope::units::MIB;
use phasescope::{Counters, Phase, PhaseRecord};

/// A small generator with a fixed seed: runs are the same everywhere.
struct Random(u64);

impl Random {
    /// Uniform in 0..1.
    fn next(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Roughly normal, with standard deviation 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.next()).sum::<f64>() - 6.0
    }
}

/// A pretended run: each step rises, falls, and ends at its floor.
struct Run {
    diagnoser: Diagnoser,
    level: u64,
    step: u64,
}

impl Run {
    fn new(start: u64) -> Self {
        let diagnoser = Diagnoser::new(Policy::default(), RunFacts::default());
        Self { diagnoser, level: start, step: 0 }
    }

    fn phase(&mut self, phase: Phase, end: u64, input: Option<u64>) {
        let mut record = PhaseRecord::new(Some(self.step), phase);
        record.start = Counters { allocated: Some(self.level), ..Counters::default() };
        record.end = Counters { allocated: Some(end), ..Counters::default() };
        record.peak_allocated = Some(self.level.max(end));
        record.input_elements = input;
        self.level = end;
        self.diagnoser.observe(&record);
    }

    fn step(&mut self, rise: u64, floor: u64, input: Option<u64>) {
        self.phase(Phase::Forward, self.level + rise, input);
        self.phase(Phase::Backward, floor + 30 * MIB, None);
        self.phase(Phase::OptimizerStep, floor + 30 * MIB, None);
        self.phase(Phase::ClearGradients, floor, None);
        self.step += 1;
    }

    fn growth(&self) -> Option<(Code, u64)> {
        let mut diagnoser = self.diagnoser.clone();
        diagnoser.finish();
        let diagnosis = diagnoser.diagnosis();
        [Code::RetainedGraph, Code::RetainedTensors]
            .into_iter()
            .find_map(|code| diagnosis.finding(code).map(|finding| (code, finding.bytes)))
    }
}

#[test]
fn a_thousand_noisy_runs_without_a_leak_give_no_growth_finding() {
    let mut random = Random(20_261_201);
    for number in 0..1000_u64 {
        let base = 200.0 * MIB as f64;
        let noise = base * 0.02 * random.next();
        let steps = 6 + (random.next() * 120.0) as u64;
        let mut run = Run::new(base as u64);
        for step in 0..steps {
            let floor = match number % 4 {
                0 => base + noise * random.next(),
                1 => base + noise * random.normal(),
                // Rare large excursions.
                2 => base + if random.next() < 0.1 { noise * 10.0 } else { 0.0 },
                // A warm-up that comes to rest.
                _ => base + noise * (1.0 - (-(step as f64)).exp()) + noise * 0.1 * random.next(),
            };
            run.step(50 * MIB, floor.max(0.0) as u64, None);
            // It is asked after every step, as in a training process.
            assert_eq!(run.growth(), None, "run {number}, step {step} of {steps}");
        }
    }
}

#[test]
fn lengths_that_grow_are_no_leak() {
    let mut run = Run::new(200 * MIB);
    for step in 0..200 {
        // The batch itself stays between steps, so the floor follows the lengths.
        let input = 1000 + 10 * step;
        run.step(input * 50_000, 200 * MIB + input * 64, Some(input));
    }
    assert_eq!(run.growth(), None);
    run.diagnoser.finish();
    assert!(run.diagnoser.diagnosis().finding(Code::VariableShapes).is_some());
}

#[test]
fn a_warm_up_of_four_steps_is_no_leak() {
    let mut run = Run::new(200 * MIB);
    for floor in [200, 210, 220, 230, 240] {
        run.step(50 * MIB, floor * MIB, None);
    }
    assert_eq!(run.growth(), None, "four increments are not judged");
    for _ in 0..10 {
        run.step(50 * MIB, 240 * MIB, None);
    }
    assert_eq!(run.growth(), None, "it came to rest");
}

#[test]
fn a_plateau_of_two_steps_does_not_clear_a_leak() {
    let mut run = Run::new(200 * MIB);
    for floor in [200, 250, 300, 350, 400, 450, 500, 500, 500] {
        run.step(50 * MIB, floor * MIB, None);
    }
    assert_eq!(run.growth(), Some((Code::RetainedGraph, 50 * MIB)));
}

#[test]
fn a_leak_of_one_block_a_step_is_found_when_it_starts_late() {
    let mut run = Run::new(200 * MIB);
    for _ in 0..500 {
        run.step(50 * MIB, 200 * MIB, None);
    }
    assert_eq!(run.growth(), None);
    for step in 1..=8 {
        run.step(50 * MIB, 200 * MIB + 512 * step, None);
    }
    assert_eq!(run.growth(), Some((Code::RetainedTensors, 512)));
}

#[test]
fn a_leak_in_noise_is_found_in_a_long_run() {
    let mut random = Random(7);
    let mut run = Run::new(200 * MIB);
    for step in 0..400 {
        let noise = (random.next() * MIB as f64) as u64;
        run.step(50 * MIB, 200 * MIB + step * MIB / 4 + noise, None);
    }
    let (code, bytes) = run.growth().unwrap_or_else(|| panic!("no growth was found"));
    assert_eq!(code, Code::RetainedTensors);
    assert!(bytes.abs_diff(MIB / 4) < MIB / 40, "{bytes} B a step");
}

#[test]
fn a_growth_inside_the_optimizer_step_is_no_optimizer_state() {
    let mut run = Run::new(200 * MIB);
    for step in 1..=10 {
        let floor = 200 * MIB + step * 40 * MIB;
        run.phase(Phase::Forward, run.level + 50 * MIB, None);
        run.phase(Phase::Backward, run.level - 20 * MIB, None);
        run.phase(Phase::OptimizerStep, floor + 30 * MIB, None);
        run.phase(Phase::ClearGradients, floor, None);
        run.step += 1;
    }
    run.diagnoser.finish();
    let diagnosis = run.diagnoser.diagnosis();
    assert_eq!(diagnosis.findings[0].code, Code::RetainedGraph);
    assert!(diagnosis.finding(Code::OptimizerState).is_none());
}

#[test]
fn state_that_was_there_before_the_first_step_is_no_jump() {
    let mut run = Run::new(300 * MIB);
    for _ in 0..8 {
        run.step(50 * MIB, 300 * MIB, None);
    }
    run.diagnoser.finish();
    assert!(run.diagnoser.diagnosis().finding(Code::OptimizerState).is_none());
}

#[test]
fn one_step_is_not_enough_data_and_says_what_is_missing() {
    let mut run = Run::new(200 * MIB);
    run.step(50 * MIB, 200 * MIB, None);
    run.diagnoser.finish();
    let diagnosis = run.diagnoser.diagnosis();
    assert!(diagnosis.findings.is_empty(), "{:?}", diagnosis.findings);
    let missing = diagnosis.insufficient.iter().find(|rule| rule.code == Code::RetainedGraph);
    assert!(
        missing.is_some_and(|rule| rule
            .missing
            .contains("6 finished steps to judge growth by, found 1"))
    );
}

#[test]
fn a_rule_that_is_off_neither_finds_nor_clears() {
    let mut policy = Policy::default();
    policy.switch_off(Code::Activations);
    let mut run = Run::new(200 * MIB);
    run.diagnoser = Diagnoser::new(policy, RunFacts::default());
    for _ in 0..8 {
        run.step(50 * MIB, 200 * MIB, None);
    }
    run.diagnoser.finish();
    let diagnosis = run.diagnoser.diagnosis();
    assert!(diagnosis.finding(Code::Activations).is_none());
    assert!(diagnosis.insufficient.iter().all(|rule| rule.code != Code::Activations));
}

#[test]
fn absent_counters_are_not_taken_for_zero() {
    let mut diagnoser = Diagnoser::new(Policy::default(), RunFacts::default());
    for step in 0..10 {
        for phase in [Phase::Forward, Phase::Backward, Phase::ClearGradients] {
            diagnoser.observe(&PhaseRecord::new(Some(step), phase));
        }
    }
    diagnoser.finish();
    let diagnosis = diagnoser.diagnosis();
    assert!(diagnosis.findings.is_empty());
    assert!(diagnosis.budget.is_none());
}
